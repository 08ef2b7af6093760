"""The functions of an exported plan as LLVM IR: start, run and stop of an instance.

An instance is one block of memory of a fixed size: its own fields, the state of its thread pool,
the words of its records, and the memory of the plan. `start` fills it and starts its threads,
`run` writes addresses and sizes where they differ from the last run's and calls the launcher,
`stop` ends the threads. Nothing is allocated, and nothing is shared between instances but
constants. The text goes behind the launcher's own (`svod.runtime.native.ir`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from svod.ir import ops as O
from svod.ir.node import UOp, toposort
from svod.runtime.export.contents import GIVEN, LINE, MEMORY, WEIGHTS, WORDS, Exported
from svod.runtime.native.layout import Lane, State

MOST_THREADS = 64
HEADER_BYTES = 64  # of the file of weights
STACK_BYTES = 8 << 20
# Ticks, at the two to three in a nanosecond that x86 counters run at; aarch64 waits longer.
IDLE_SPIN, RUN_SPIN = 200_000, 2_500_000
OK, UNALIGNED, NO_MEMORY, OTHER_WEIGHTS, OUT_OF_BOUNDS, BAD_INDEX = range(6)
ERRORS = {
    "ok": "it worked",
    "unaligned": "the workspace or the weights do not start at a multiple of 64",
    "no_memory": "a pointer is null",
    "other_weights": "the weights were not exported with this code",
    "out_of_bounds": "a size is outside of its bounds",
    "bad_index": "an index in an input is out of range; outputs are not complete",
}


@dataclass(frozen=True, slots=True)
class Offsets:
    """Bytes from the start of an instance."""

    places: int  # where each place is
    state: int
    threads: int  # their numbers by lane
    words: int
    memory: int
    size: int


def offsets_of(found: Exported) -> Offsets:
    """The layout of an instance."""
    state = _line(LINE + 8 * (GIVEN + len(found.arguments)))
    threads = state + State.LANES + MOST_THREADS * Lane.SIZE
    words = _line(threads + 8 * MOST_THREADS)
    memory = _line(words + 8 * len(found.words))
    return Offsets(LINE, state, threads, words, memory, memory + max(found.memory_bytes, LINE))


def model_ir(name: str, found: Exported, key: bytes, has_threads: bool) -> str:
    """The text that makes a launcher and kernels a model; ``key`` starts its weights."""
    at = offsets_of(found)
    parts = [_tables(found, key, has_threads), _bind(at), _start(name, found, at, has_threads)]
    parts += [_run(name, found, at), _stop(name, at, has_threads)]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _line(size: int) -> int:
    return -(-size // LINE) * LINE


def _tables(found: Exported, key: bytes, has_threads: bool) -> str:
    words = ", ".join([f"i64 {word}" for word in found.words])
    fixes = ", ".join(
        [f"{{i32, i32, i64}} {{i32 {p}, i32 {w}, i64 {o}}}" for p, w, o in found.fixes]
    )
    functions = ", ".join(
        [f"{{i64, ptr}} {{i64 {w}, ptr @{found.symbols[n]}}}" for w, n in found.functions]
    )
    head = ", ".join([f"i64 {int.from_bytes(key[i : i + 8], 'little')}" for i in range(0, 64, 8)])
    symbols = [f"declare void @{symbol}(ptr, ptr, i64)" for symbol in found.symbols]
    threads = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @llvm.smin.i32(i32, i32)"""
    return f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{threads if has_threads else ""}
{chr(10).join(symbols)}
@model.words = internal constant [{len(found.words)} x i64] [{words}], align 64
@model.fixes = internal constant [{len(found.fixes)} x {{i32, i32, i64}}] [{fixes}], align 16
@model.functions = internal constant [{len(found.functions)} x {{i64, ptr}}] [{functions}], align 16
@model.key = internal constant <8 x i64> <{head}>, align 64
"""


def _bind(at: Offsets) -> str:
    """Write the addresses of rows [first, last) of the table."""
    return f"""
define internal void @model.bind(ptr %instance, i64 %first, i64 %last) {{
entry:
  %some = icmp ult i64 %first, %last
  br i1 %some, label %row, label %done
row:
  %number = phi i64 [%first, %entry], [%next, %row]
  %fix = getelementptr inbounds {{i32, i32, i64}}, ptr @model.fixes, i64 %number
  %word.in = getelementptr inbounds i8, ptr %fix, i64 4
  %offset.in = getelementptr inbounds i8, ptr %fix, i64 8
  %place = load i32, ptr %fix, align 4
  %word = load i32, ptr %word.in, align 4
  %offset = load i64, ptr %offset.in, align 8
  %place.wide = zext i32 %place to i64
  %word.wide = zext i32 %word to i64
  %places = getelementptr inbounds i8, ptr %instance, i64 {at.places}
  %base.at = getelementptr inbounds i64, ptr %places, i64 %place.wide
  %base = load i64, ptr %base.at, align 8
  %address = add i64 %base, %offset
  %words = getelementptr inbounds i8, ptr %instance, i64 {at.words}
  %word.at = getelementptr inbounds i64, ptr %words, i64 %word.wide
  store i64 %address, ptr %word.at, align 8
  %next = add i64 %number, 1
  %more = icmp ult i64 %next, %last
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""


def _start(name: str, found: Exported, at: Offsets, has_threads: bool) -> str:
    copies = []
    for number, (memory, weights, size) in enumerate(found.starts):
        copies.append(f"""
  %to{number} = getelementptr inbounds i8, ptr %memory, i64 {memory}
  %from{number} = getelementptr inbounds i8, ptr %data, i64 {weights}
  call void @llvm.memcpy.p0.p0.i64(ptr %to{number}, ptr %from{number}, i64 {size}, i1 false)""")
    nbytes = 8 * len(found.words)
    plain = sum(place < GIVEN for place, _, _ in found.fixes)
    looks = found.weights_bytes > 0
    return f"""
define i32 @{name}_start(ptr %instance, ptr %weights, i32 %threads) {{
entry:
  %no.instance = icmp eq ptr %instance, null
  %no.weights = {"icmp eq ptr %weights, null" if looks else "icmp ne i64 0, 0"}
  %lacking = or i1 %no.instance, %no.weights
  br i1 %lacking, label %refuse.memory, label %align
refuse.memory:
  ret i32 {NO_MEMORY}
align:
  %address = ptrtoint ptr %instance to i64
  %weights.address = ptrtoint ptr %weights to i64
  %both = or i64 %address, %weights.address
  %low = and i64 %both, {LINE - 1}
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %{"compare" if looks else "fill"}, label %refuse.alignment
refuse.alignment:
  ret i32 {UNALIGNED}
compare:
  %key = load <8 x i64>, ptr @model.key, align 64
  %given = load <8 x i64>, ptr %weights, align 64
  %differs = icmp ne <8 x i64> %key, %given
  %bits = bitcast <8 x i1> %differs to i8
  %equal = icmp eq i8 %bits, 0
  br i1 %equal, label %fill, label %refuse.weights
refuse.weights:
  ret i32 {OTHER_WEIGHTS}
fill:
  call void @llvm.memset.p0.i64(ptr %instance, i8 0, i64 {at.words}, i1 false)
  %words = getelementptr inbounds i8, ptr %instance, i64 {at.words}
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr @model.words, i64 {nbytes}, i1 false)
  %memory = getelementptr inbounds i8, ptr %instance, i64 {at.memory}
  %data = getelementptr i8, ptr %weights, i64 {HEADER_BYTES}
  {_place("words.place", WORDS, at)}
  {_place("weights.place", WEIGHTS, at)}
  {_place("memory.place", MEMORY, at)}
  store ptr %words, ptr %words.place, align 8
  store ptr %data, ptr %weights.place, align 8
  store ptr %memory, ptr %memory.place, align 8
  call void @model.bind(ptr %instance, i64 0, i64 {plain})
  {"br label %function" if found.functions else "br label %prepare"}
function:
  %number = phi i64 [0, %fill], [%next, %function]
  %row = getelementptr inbounds {{i64, ptr}}, ptr @model.functions, i64 %number
  %code.in = getelementptr inbounds i8, ptr %row, i64 8
  %word = load i64, ptr %row, align 8
  %code = load ptr, ptr %code.in, align 8
  %word.at = getelementptr inbounds i64, ptr %words, i64 %word
  store ptr %code, ptr %word.at, align 8
  %next = add i64 %number, 1
  %more = icmp ult i64 %next, {len(found.functions)}
  br i1 %more, label %function, label %prepare
prepare:
  {"".join(copies)}
  {_field("state", at.state)}
  {_field("threads.at", at.state + State.THREADS)}
  {_field("idle.at", at.state + State.IDLE_SPIN)}
  {_field("busy.at", at.state + State.RUN_SPIN)}
  {_field("slice.at", at.state + State.SLICE)}
  store i64 1, ptr %threads.at, align 8
  store i64 {IDLE_SPIN}, ptr %idle.at, align 8
  store i64 {RUN_SPIN}, ptr %busy.at, align 8
  store i64 -1, ptr %slice.at, align 8
{_start_threads(at) if has_threads else f"  ret i32 {OK}"}
}}
"""


def _start_threads(at: Offsets) -> str:
    """Lanes 1 and on; where the system refuses one, there are fewer."""
    return f"""
  %wanted = call i32 @llvm.smin.i32(i32 %threads, i32 {MOST_THREADS})
  %several = icmp sgt i32 %wanted, 1
  br i1 %several, label %create, label %alone
alone:
  ret i32 {OK}
create:
  %attributes = alloca [32 x i64], align 16
  %signals = alloca [16 x i64], align 16
  %before = alloca [16 x i64], align 16
  {_field("alive.at", at.state + State.ALIVE)}
  {_field("started.at", at.state + State.STARTED)}
  {_field("lanes", at.state + State.LANES)}
  {_field("numbers", at.threads)}
  %lanes.wanted = zext i32 %wanted to i64
  %workers = sub i64 %lanes.wanted, 1
  store i64 %lanes.wanted, ptr %threads.at, align 8
  store i64 %workers, ptr %alive.at, align 8
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {STACK_BYTES})
  call i32 @sigfillset(ptr %signals)
  call i32 @pthread_sigmask(i32 2, ptr %signals, ptr %before)
  br label %lane
lane:
  %lane.number = phi i64 [1, %create], [%lane.next, %created]
  %lane.offset = mul i64 %lane.number, {Lane.SIZE}
  %block = getelementptr inbounds i8, ptr %lanes, i64 %lane.offset
  %block.state = getelementptr inbounds i8, ptr %block, i64 {Lane.STATE}
  %block.number = getelementptr inbounds i8, ptr %block, i64 {Lane.NUMBER}
  store ptr %state, ptr %block.state, align 8
  store i64 %lane.number, ptr %block.number, align 8
  %thread.at = getelementptr inbounds i64, ptr %numbers, i64 %lane.number
  %failed = call i32 @pthread_create(ptr %thread.at, ptr %attributes, ptr @worker, ptr %block)
  %is.there = icmp eq i32 %failed, 0
  br i1 %is.there, label %created, label %fewer
created:
  %lane.next = add i64 %lane.number, 1
  %lanes.left = icmp ult i64 %lane.next, %lanes.wanted
  br i1 %lanes.left, label %lane, label %running
fewer:
  %workers.there = sub i64 %lane.number, 1
  store atomic i64 %lane.number, ptr %threads.at monotonic, align 8
  store atomic i64 %workers.there, ptr %alive.at monotonic, align 8
  br label %running
running:
  call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  call i32 @pthread_attr_destroy(ptr %attributes)
  store atomic i64 1, ptr %started.at release, align 8
  ret i32 {OK}"""


def _run(name: str, found: Exported, at: Offsets) -> str:
    """A run: check, bind what changed, launch, copy what was not computed in place."""
    given = [f"ptr %given{n}" for n in range(len(found.arguments))]
    sizes = [f"i64 %size{n}" for n in range(len(found.variables))]
    lines: list[str] = []
    checks = [
        f"icmp eq ptr %given{n}, null" for n, a in enumerate(found.arguments) if a.port.nbytes
    ]
    lines += _refuse("null", checks, "refuse.memory")
    values: dict[str, str] = {}
    bounds = []
    for number, variable in enumerate(found.variables):
        values[variable.name] = f"%size{number}"
        bounds.append(f"icmp slt i64 %size{number}, {variable.low}")
        bounds.append(f"icmp sgt i64 %size{number}, {variable.high}")
    lines += _refuse("limit", bounds, "refuse.bounds")
    cores: list[tuple[int, str]] = []
    for number, (word, size) in enumerate(found.sizes):
        text, value = expression_ir(size, values, f"e{number}")
        lines += text
        cores.append((word, value))
    lines += _refuse("empty", [f"icmp slt i64 {value}, 1" for _, value in cores], "refuse.bounds")
    lines.append(f"  {_field('words', at.words)}")
    for number, variable in enumerate(found.variables):
        for word in variable.words:
            lines += _store_word(f"v{number}.{word}", word, f"%size{number}")
    for number, (word, value) in enumerate(cores):
        lines += _store_word(f"c{number}", word, value)
    lines.append(f"  {_field('memory', at.memory)}")
    for number, argument in enumerate(found.arguments):
        if argument.copied is None:
            lines += _give(number, found, at)
        elif not argument.port.is_output:
            lines += _copy(number, argument.copied, argument.port.nbytes, "in")
    lines.append(f"  {_field('state', at.state)}")
    lines.append(
        f"  %stopped = call i64 @run(ptr %state, ptr %words, i64 0, i64 {found.records}, ptr null)"
    )
    lines += _refuse("stop", [f"icmp ne i64 %stopped, {found.records}"], "refuse.index")
    for number, argument in enumerate(found.arguments):
        if argument.copied is not None and argument.port.is_output:
            lines += _copy(number, argument.copied, argument.port.nbytes, "out")
    body = "\n".join(lines)
    return f"""
define i32 @{name}_run({", ".join(["ptr %instance", *given, *sizes])}) {{
entry:
{body}
  ret i32 {OK}
refuse.memory:
  ret i32 {NO_MEMORY}
refuse.bounds:
  ret i32 {OUT_OF_BOUNDS}
refuse.index:
  ret i32 {BAD_INDEX}
}}
"""


def _refuse(name: str, tests: list[str], where: str) -> list[str]:
    """Leave for a block where one of the tests holds."""
    lines = []
    for number, test in enumerate(tests):
        lines += [
            f"  %{name}{number} = {test}",
            f"  br i1 %{name}{number}, label %{where}, label %{name}{number}.fine",
            f"{name}{number}.fine:",
        ]
    return lines


def _give(number: int, found: Exported, at: Offsets) -> list[str]:
    """The addresses of an argument, where it is not what the last run was given."""
    place = GIVEN + number
    rows = [i for i, fix in enumerate(found.fixes) if fix[0] == place]
    if not rows:
        return []
    return [
        f"  {_place(f'place{number}', place, at)}",
        f"  %known{number} = load ptr, ptr %place{number}, align 8",
        f"  %same{number} = icmp eq ptr %known{number}, %given{number}",
        f"  br i1 %same{number}, label %bound{number}, label %bind{number}",
        f"bind{number}:",
        f"  store ptr %given{number}, ptr %place{number}, align 8",
        f"  call void @model.bind(ptr %instance, i64 {rows[0]}, i64 {rows[-1] + 1})",
        f"  br label %bound{number}",
        f"bound{number}:",
    ]


def _copy(number: int, offset: int, nbytes: int, way: str) -> list[str]:
    inside, given = f"%own.{way}{number}", f"%given{number}"
    to, source = (inside, given) if way == "in" else (given, inside)
    return [
        f"  {inside} = getelementptr inbounds i8, ptr %memory, i64 {offset}",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)",
    ]


def _store_word(name: str, word: int, value: str) -> list[str]:
    return [
        f"  %{name} = getelementptr inbounds i64, ptr %words, i64 {word}",
        f"  store i64 {value}, ptr %{name}, align 8",
    ]


def _stop(name: str, at: Offsets, has_threads: bool) -> str:
    if not has_threads:
        return f"""
define void @{name}_stop(ptr %instance) {{
  ret void
}}
"""
    return f"""
define void @{name}_stop(ptr %instance) {{
entry:
  {_field("state", at.state)}
  {_field("threads.at", at.state + State.THREADS)}
  {_field("numbers", at.threads)}
  %threads = load atomic i64, ptr %threads.at monotonic, align 8
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %end, label %done
end:
  call void @retire(ptr %state)
  br label %join
join:
  %lane = phi i64 [1, %end], [%next, %join]
  %thread.at = getelementptr inbounds i64, ptr %numbers, i64 %lane
  %thread = load ptr, ptr %thread.at, align 8
  call i32 @pthread_join(ptr %thread, ptr null)
  %next = add i64 %lane, 1
  %more = icmp ult i64 %next, %threads
  br i1 %more, label %join, label %ended
ended:
  store atomic i64 1, ptr %threads.at monotonic, align 8
  br label %done
done:
  ret void
}}
"""


def _field(name: str, offset: int) -> str:
    return f"%{name} = getelementptr inbounds i8, ptr %instance, i64 {offset}"


def _place(name: str, place: int, at: Offsets) -> str:
    return _field(name, at.places + 8 * place)


# -- sizes ----------------------------------------------------------------------------------------

_PLAIN = {O.ADD: "add", O.SUB: "sub", O.MUL: "mul"}


def expression_ir(root: UOp, values: Mapping[str, str], prefix: str) -> tuple[list[str], str]:
    """Lines that compute an expression over sizes, as `svod.device.launch` does, and its name."""
    lines: list[str] = []
    names: dict[UOp, str] = {}
    for number, node in enumerate(toposort((root,))):
        here = f"%{prefix}.{number}"
        sources = [names.get(s, "0") for s in node.src]
        if node.op == O.CONST:
            names[node] = str(int(node.arg))
        elif node.op == O.DEFINE_VAR:
            names[node] = values[node.arg.name]
        elif node.op in (O.CAST, O.BITCAST, O.AFTER, O.BIND):
            names[node] = sources[node.op == O.BIND]
        else:
            lines += _arithmetic(node.op, here, sources)
            names[node] = here
    return lines, names[root]


def _arithmetic(op: int, here: str, sources: list[str]) -> list[str]:
    left, right = sources[0], sources[-1]
    if op in _PLAIN:
        return [f"  {here} = {_PLAIN[op]} i64 {left}, {right}"]
    if op == O.NEG:
        return [f"  {here} = sub i64 0, {left}"]
    if op == O.ABS:
        return [
            f"  {here}.n = sub i64 0, {left}",
            f"  {here}.t = icmp slt i64 {left}, 0",
            f"  {here} = select i1 {here}.t, i64 {here}.n, i64 {left}",
        ]
    if op == O.MAX:
        return [
            f"  {here}.t = icmp sgt i64 {left}, {right}",
            f"  {here} = select i1 {here}.t, i64 {left}, i64 {right}",
        ]
    assert op in (O.IDIV, O.MOD), f"{O.NAMES[op]} is no arithmetic of sizes"
    # LLVM rounds toward zero, the IR toward minus infinity.
    change = f"add i64 {here}.r, {right}" if op == O.MOD else f"sub i64 {here}.q, 1"
    return [
        f"  {here}.q = sdiv i64 {left}, {right}",
        f"  {here}.r = srem i64 {left}, {right}",
        f"  {here}.s = xor i64 {here}.r, {right}",
        f"  {here}.u = icmp slt i64 {here}.s, 0",
        f"  {here}.z = icmp ne i64 {here}.r, 0",
        f"  {here}.t = and i1 {here}.u, {here}.z",
        f"  {here}.c = {change}",
        f"  {here} = select i1 {here}.t, i64 {here}.c, i64 {here}.{'r' if op == O.MOD else 'q'}",
    ]
