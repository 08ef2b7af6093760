"""Damaged and hostile files: each is an error of Svod or a right result.

`python -m tests.frontend.onnx.fuzz FIRST LAST` changes valid models (bits, lengths, cut ends,
attributes, names, shapes, types), one for each number, and loads and runs each in a process of its
own with 10 seconds and 2 GiB. A crash, a hang, too much memory, an exception that is no SvodError
and, where onnxruntime takes the file too, another result are faults. `--against` compares.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.frontend.onnx.seeds import EXTERNAL_FILE, EXTERNAL_NUMBERS, SEEDS

SECONDS, BYTES = 10, 2 << 30
_RANDOM = (b"Random", b"Bernoulli", b"Multinomial")  # operators without one right result
_WHOLE = [-1, 0, 1, 2, 3, 7, 64, 65, -2, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]
_REAL = [0.0, -1.0, 1e30, float("inf"), float("nan"), 1e-30]


@functools.cache
def seeds_of_suite() -> tuple[Any, ...]:
    """The cases of ONNX's backend suite that we take, as further seeds."""
    from tests.frontend.onnx.cases import cases
    from tests.frontend.onnx.excluded import reason

    def maker(case: Any) -> Callable[[], tuple[bytes, dict[str, Any]]]:
        names = [i.name for i in case.model.graph.input]
        feeds = dict(zip(names, case.data_sets[0][0], strict=False))
        return lambda: (case.model.SerializeToString(), feeds)

    found = [c for c in cases("node") if reason(c.name) is None and c.model is not None]
    return tuple([(c.name, maker(c)) for c in found])


def mutated(number: int, of_suite: bool = False) -> tuple[str, bytes, dict[str, Any]]:
    """The changed file of a number: its kind, its bytes, its inputs."""
    generator = np.random.default_rng(number)
    seeds = list(seeds_of_suite() if of_suite else SEEDS.items())
    place = int(generator.integers(len(seeds))) if of_suite else number % len(seeds)
    seed, make = seeds[place]
    data, feeds = make()
    changes = list(_CHANGES)
    change = changes[(number // len(SEEDS)) % len(changes)]
    return f"{seed} {change}", _CHANGES[change](data, generator), feeds


def _flip(data: bytes, generator: Any) -> bytes:
    changed = bytearray(data)
    for _ in range(int(generator.integers(1, 6))):
        changed[generator.integers(len(changed))] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def _cut(data: bytes, generator: Any) -> bytes:
    return data[: generator.integers(len(data))]


def _lengths(data: bytes, generator: Any) -> bytes:
    """Bytes that are left out, doubled or put in, so that lengths no longer fit."""
    at = int(generator.integers(len(data)))
    size = int(generator.integers(1, 9))
    kind = int(generator.integers(3))
    if kind == 0:
        return data[:at] + data[at + size :]
    return data[:at] + (data[at : at + size] if kind == 1 else generator.bytes(size)) + data[at:]


def _bytes(data: bytes, generator: Any) -> bytes:
    """Bytes that are replaced by those that mean the most."""
    changed = bytearray(data)
    for _ in range(int(generator.integers(1, 4))):
        values = [0, 1, 2, 127, 128, 255]
        changed[generator.integers(len(changed))] = values[generator.integers(len(values))]
    return bytes(changed)


def _of_message(change: Callable[[Any, Any], None]) -> Callable[[bytes, Any], bytes]:
    """A change of the message that the bytes hold."""

    def apply(data: bytes, generator: Any) -> bytes:
        import onnx

        model = onnx.load_from_string(data)
        change(model, generator)
        return bytes(model.SerializeToString())

    return apply


def _pick(generator: Any, items: Any) -> Any:
    return items[int(generator.integers(len(items)))]


def _nodes(model: Any) -> list[Any]:
    found = list(model.graph.node)
    for function in model.functions:
        found += function.node
    for node in list(found):
        for attribute in node.attribute:
            found += attribute.g.node
    return found


def _attribute(model: Any, generator: Any) -> None:
    having = [n for n in _nodes(model) if n.attribute] or _nodes(model)
    node = _pick(generator, having)
    if not node.attribute:
        node.attribute.add(name="axis", type=2, i=_pick(generator, _WHOLE))
        return
    attribute = _pick(generator, node.attribute)
    kind = int(generator.integers(5))
    if kind == 0:
        attribute.type = int(generator.integers(0, 15))
    elif kind == 1:
        node.attribute.remove(attribute)
    elif len(attribute.ints):
        attribute.ints[int(generator.integers(len(attribute.ints)))] = _pick(generator, _WHOLE)
        if kind == 2:
            attribute.ints.append(_pick(generator, _WHOLE))
    else:
        attribute.i, attribute.f = _pick(generator, _WHOLE), _pick(generator, _REAL)
        attribute.s = _pick(generator, [b"", b"\xff", b"nearest", b"NOTSET", b"...", b"ij,jk"])


def _names(model: Any, generator: Any) -> None:
    nodes = _nodes(model)
    node = _pick(generator, nodes)
    known = [n for m in nodes for n in (*m.input, *m.output)] + ["", "nobody"]
    target = _pick(generator, [node.input, node.output])
    if len(target) and generator.integers(4):
        target[int(generator.integers(len(target)))] = _pick(generator, known)
    elif len(target) and generator.integers(2):
        target.pop()
    else:
        target.append(_pick(generator, known))


def _operators(model: Any, generator: Any) -> None:
    from svod.frontend.onnx.registry import known

    node = _pick(generator, _nodes(model))
    node.op_type = _pick(generator, known())
    if generator.integers(2):
        del node.attribute[:]


def _constants(model: Any, generator: Any) -> None:
    from onnx import numpy_helper

    whole = [t for t in model.graph.initializer if t.data_type == 7]
    if not whole:
        _shapes(model, generator)
        return
    chosen = _pick(generator, whole)
    array = numpy_helper.to_array(chosen).copy()
    array.reshape(-1)[int(generator.integers(max(array.size, 1)))] = _pick(generator, _WHOLE)
    chosen.CopyFrom(numpy_helper.from_array(array, chosen.name))


def _shapes(model: Any, generator: Any) -> None:
    tensors = list(model.graph.initializer)
    if tensors and generator.integers(2):
        tensor = _pick(generator, tensors)
        kind = int(generator.integers(3))
        if kind == 0:
            tensor.data_type = int(generator.integers(0, 28))
        elif kind == 1 and len(tensor.dims):
            tensor.dims[int(generator.integers(len(tensor.dims)))] = _pick(generator, _WHOLE)
        else:
            tensor.dims.append(_pick(generator, _WHOLE))
        return
    info = _pick(generator, list(model.graph.input) + list(model.graph.output))
    kind = info.type.tensor_type
    if len(kind.shape.dim) and generator.integers(2):
        dimension = _pick(generator, kind.shape.dim)
        if generator.integers(2):
            dimension.dim_value = _pick(generator, _WHOLE)
        else:
            dimension.dim_param = _pick(generator, ["n", "x", "a b", "", "1"])
    elif generator.integers(2):
        kind.elem_type = int(generator.integers(0, 28))
    else:
        kind.shape.dim.add(dim_value=_pick(generator, _WHOLE))


def _external(model: Any, generator: Any) -> None:
    """Where external data is said to lie."""
    entries = [e for t in model.graph.initializer for e in t.external_data]
    if not entries:
        _order(model, generator)
        return
    entry = _pick(generator, entries)
    values = [
        "-1", "0", "4", "8191", "1e3", "99999999999999999999", "", "\u0663", "..", "/dev/zero",
        "/etc/passwd", "../w.bin", "m.onnx", ".", "w.bin/", "W.BIN", str(1 << 62),
    ]  # fmt: skip
    if generator.integers(4):
        entry.value = _pick(generator, values)
    else:
        entry.key = _pick(generator, ["offset", "length", "location", "checksum", ""])


def _order(model: Any, generator: Any) -> None:
    nodes = model.graph.node
    one, other = int(generator.integers(len(nodes))), int(generator.integers(len(nodes)))
    kind = int(generator.integers(4))
    if kind == 0:
        nodes[one].op_type, nodes[other].op_type = nodes[other].op_type, nodes[one].op_type
    elif kind == 1:
        del nodes[one]
    elif kind == 2:
        nodes.add().CopyFrom(nodes[one])
    else:
        model.opset_import[0].version = _pick(generator, _WHOLE)


_CHANGES: dict[str, Callable[[bytes, Any], bytes]] = {
    "flip": _flip, "cut": _cut, "lengths": _lengths, "bytes": _bytes,
    "attribute": _of_message(_attribute), "names": _of_message(_names),
    "operators": _of_message(_operators), "constants": _of_message(_constants),
    "shapes": _of_message(_shapes), "order": _of_message(_order),
    "external": _of_message(_external),
}  # fmt: skip


def source(data: bytes) -> Any:
    """What to load: bytes, or a path in a folder with the other file where the model names it."""
    if b"location" not in data:
        return data
    folder = tempfile.mkdtemp(dir=_folder())
    EXTERNAL_NUMBERS.tofile(os.path.join(folder, EXTERNAL_FILE))
    path = os.path.join(folder, "m.onnx")
    with open(path, "wb") as file:
        file.write(data)
    return path


@functools.cache
def _folder() -> str:
    """A folder for this process and its children, which goes with it."""
    holder = tempfile.TemporaryDirectory()
    atexit.register(holder.cleanup)
    return holder.name


def run_ours(data: bytes, feeds: dict[str, Any]) -> tuple[str, Any]:
    """Load and run: ("right", results), ("error", text), or ("foreign", traceback)."""
    import svod

    try:
        return "right", svod.onnx.load(source(data)).run(feeds)
    except svod.errors.SvodError as error:
        return "error", f"{type(error).__name__}: {error}"
    except Exception:  # what the fuzzer looks for
        return "foreign", traceback.format_exc()


def run_peer(data: bytes, feeds: dict[str, Any]) -> tuple[str, Any]:
    """The same by onnxruntime."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        return "right", onnxruntime.InferenceSession(source(data)).run(None, feeds)
    except Exception as error:
        return "error", str(error)


def in_child(work: Callable[[], tuple[str, Any]]) -> tuple[str, Any]:
    """The outcome of work in a forked process with limits; "crash" and "hang" are ours."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _child(work, reader, writer)
    os.close(writer)
    parts = []
    with os.fdopen(reader, "rb") as stream:
        while part := stream.read(1 << 16):
            parts.append(part)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("hang", f"{SECONDS} s") if number == signal.SIGALRM else ("crash", f"{number}")
    if not parts:
        return "crash", f"exit status {os.waitstatus_to_exitcode(status)}"
    found: tuple[str, Any] = pickle.loads(b"".join(parts))  # from our own child
    return found


def _child(work: Callable[[], tuple[str, Any]], reader: int, writer: int) -> None:
    os.close(reader)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, size + BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    try:
        kind, found = work()
        with os.fdopen(writer, "wb") as stream:
            stream.write(pickle.dumps((kind, found)))
    finally:
        os._exit(0)


def difference(ours: Any, theirs: Any) -> str:
    """How results differ, in words; nothing where they agree."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if a.dtype.kind in "fiub" and not np.allclose(a, b, 1e-3, 1e-4, equal_nan=True):
            return f"{a.reshape(-1)[:8]}, not {b.reshape(-1)[:8]}"
    return ""


def outcome(number: int, against: bool = False, of_suite: bool = False) -> tuple[str, str, str]:
    """The kind of a number's file, what came of it and why."""
    kind, data, feeds = mutated(number, of_suite)
    what, found = in_child(lambda: run_ours(data, feeds))
    if what != "right":
        return kind, what, str(found)
    if against and not any(name in data for name in _RANDOM):
        peer, theirs = in_child(lambda: run_peer(data, feeds))
        if peer == "right" and (text := difference(found, theirs)):
            return kind, "differs", text
    return kind, what, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.onnx.fuzz")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--against", action="store_true", help="compare with onnxruntime")
    parser.add_argument("--suite", action="store_true", help="change the cases of ONNX's suite")
    options = parser.parse_args()
    warm_up()
    counts: Counter[str] = Counter()
    slowest = 0.0
    for number in range(options.first, options.last):
        start = time.monotonic()
        kind, what, why = outcome(number, options.against, options.suite)
        slowest = max(slowest, time.monotonic() - start)
        counts[what] += 1
        if what not in ("right", "error"):
            print(f"{number} {kind}: {what}: {why}", flush=True)
    shown = ", ".join(f"{n} {what}" for what, n in counts.most_common())
    print(f"{sum(counts.values())} files: {shown}; the slowest took {slowest:.1f} s")
    return int(bool(set(counts) - {"right", "error"}))


def warm_up() -> None:
    """Import what the children need, so that each forks with it."""
    import onnx.numpy_helper  # noqa: F401

    import svod.frontend.onnx
    import svod.runtime.prepare  # noqa: F401

    _folder()
    for seed in SEEDS:
        in_child(lambda seed=seed: run_ours(*SEEDS[seed]()))  # type: ignore[misc]


if __name__ == "__main__":
    sys.exit(main())
