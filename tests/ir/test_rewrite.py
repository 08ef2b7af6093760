"""Rules, the matcher they compile to, the pass that applies them, and the nodes underneath."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from svod.base.errors import GraphError, RewriteLoopError
from svod.dtype import types as dt
from svod.ir import node as nodes
from svod.ir import ops as O
from svod.ir import symbolic
from svod.ir.args import AxisKind, ParamArg, RangeArg
from svod.ir.node import UOp, const, make, toposort
from svod.ir.ops import ADD, CONST, EXP, LOAD, LT, MAX, MUL, NEG, NOT, PARAM, SINK, SQRT, SUB, WHERE
from svod.ir.patterns import ordered, rule
from svod.ir.rewrite import compile_rules, rewrite, stats
from svod.ir.sweep import live_nodes, sweep
from svod.optimize.graph import replace_all

f32, i32 = dt.float32, dt.int32


def param(slot: int, dtype: dt.DType = f32, shape: tuple[int, ...] = ()) -> UOp:
    return make(PARAM, dtype, (), ParamArg(slot, shape))


x, y, z = param(0), param(1), param(2)


def op(number: int, *src: UOp) -> UOp:
    return make(number, dt.bool_ if number in O.COMPARE else src[-1].dtype, src)


def num(value: float) -> UOp:
    return const(value, f32)


def matched(pattern: Any, node: UOp, result: Any = None, **options: Any) -> UOp | None:
    return compile_rules([rule("one", pattern, result or (lambda root: num(7)), **options)])(node)


# -- patterns --------------------------------------------------------------------------------------


def test_a_name_matches_anything_and_itself_again() -> None:
    pattern = (SUB, "a", "a")
    assert matched(pattern, op(SUB, x, x)) is num(7)
    assert matched(pattern, op(SUB, x, y)) is None


def test_numbers_match_by_value_and_zeros_by_sign() -> None:
    assert matched((MUL, "a", 2), op(MUL, x, num(2.0)))
    assert matched((MUL, "a", 2), op(MUL, x, num(3.0))) is None
    assert matched((SUB, "a", 0), op(SUB, x, num(0.0)))
    assert matched((SUB, "a", 0), op(SUB, x, num(-0.0))) is None
    assert matched((SUB, "a", -0.0), op(SUB, x, num(-0.0)))
    assert matched((SUB, "a", -0.0), op(SUB, x, num(0.0))) is None
    n = param(3, i32)
    assert matched((SUB, "a", -0.0), op(SUB, n, const(0, i32)))
    assert matched((MUL, "a", 2), op(MUL, x, y)) is None


def test_commutative_ops_match_in_both_orders_at_every_depth() -> None:
    pattern = (ADD, (MUL, "a", 2), "b")
    inner = (op(MUL, x, num(2.0)), op(MUL, num(2.0), x))
    for product in inner:
        for node in (op(ADD, product, y), op(ADD, y, product)):
            assert matched(pattern, node, (SUB, "a", "b")) is op(SUB, x, y)
    assert matched((SUB, 2, "a"), op(SUB, x, num(2.0))) is None


def test_written_order_only() -> None:
    assert matched((~ADD, "#c", "a"), op(ADD, num(2.0), x))
    assert matched((~ADD, "#c", "a"), op(ADD, x, num(2.0))) is None
    assert matched((ordered(frozenset({ADD, MUL})), "#c", "a"), op(MUL, x, num(2.0))) is None


def test_sets_of_ops_classes_and_constants() -> None:
    either = frozenset({SQRT, EXP})
    assert matched((either, (either, "a")), op(SQRT, op(EXP, x)))
    assert matched((either, (either, "a")), op(SQRT, op(NEG, x))) is None
    n = param(3, i32)
    assert matched((NEG, "a:int"), op(NEG, n), "a") is n
    assert matched((NEG, "a:int"), op(NEG, x)) is None
    assert matched((ADD, "#a", "#b"), op(ADD, num(1.0), num(2.0)), "#b") is num(2.0)
    assert matched((WHERE, True, "a", "b"), op(WHERE, const(True, dt.bool_), x, y), "a") is x


def test_open_source_lists() -> None:
    index = make(O.INDEX, f32, (x, symbolic.ZERO))
    gated = make(LOAD, f32, (index, num(0.0)))
    plain = make(LOAD, f32, (index,))
    assert matched((LOAD, "i"), plain) and matched((LOAD, "i"), gated) is None
    assert matched((LOAD, "i", ...), plain) and matched((LOAD, "i", ...), gated)
    assert matched((LOAD, "i", "alternative"), plain) is None


def test_guards_and_results_take_what_they_name() -> None:
    subject = rule(
        "scaled",
        (MUL, "a", "#c"),
        lambda root, c, a: make(ADD, root.dtype, (a, c)),
        when=lambda c: c.arg > 3,
    )
    matcher = compile_rules([subject])
    assert matcher(op(MUL, x, num(4.0))) is op(ADD, x, num(4.0))
    assert matcher(op(MUL, x, num(3.0))) is None


def test_a_declining_result_lets_the_next_rule_try() -> None:
    matcher = compile_rules(
        [rule("first", (NEG, "a"), lambda: None), rule("second", (NEG, "a"), "a")]
    )
    assert matcher(op(NEG, x)) is x


def test_earlier_rules_win_on_the_same_tests() -> None:
    first, second = rule("first", (NEG, "a"), (SQRT, "a")), rule("second", (NEG, "a"), (EXP, "a"))
    assert compile_rules([first, second])(op(NEG, x)) is op(SQRT, x)
    assert compile_rules([second, first])(op(NEG, x)) is op(EXP, x)


def test_templates_take_dtypes_from_their_operands() -> None:
    result = matched(
        (WHERE, "c", "a", "b"), op(WHERE, op(LT, x, y), x, y),
        (WHERE, (NOT, "c"), (ADD, "b", 1), (MAX, "a", 0)),
    )  # fmt: skip
    condition = op(NOT, op(LT, x, y))
    assert condition.dtype is dt.bool_
    assert result is op(WHERE, condition, op(ADD, y, num(1.0)), op(MAX, x, num(0.0)))
    four = f32.vec(4)
    a = param(0, four)
    less = matched((NEG, "a"), op(NEG, a), (LT, "a", 0))
    assert less is make(LT, dt.bool_.vec(4), (a, const(0.0, four)))


def test_templates_build_index_arithmetic_in_normal_form() -> None:
    i = make(O.RANGE, dt.index, (symbolic.num(8),), RangeArg(0, AxisKind.LOOP))
    odd = make(SUB, dt.index, (i, symbolic.num(3)))
    assert matched((SUB, "a", "#c"), odd, (ADD, (ADD, "a", "#c"), -3)) is i


def test_a_result_never_loses_a_shape() -> None:
    a, s = param(0, f32, (4,)), param(1)
    matcher = compile_rules([rule("first", (MAX, "a", "b"), "a"), rule("zero", (SUB, "a", "a"), 0)])
    assert matcher(op(MAX, a, s)) is a
    assert matcher(op(MAX, s, a)) is None
    assert matcher(op(SUB, a, a)) is None
    assert matcher(op(SUB, s, s)) is num(0.0)


@pytest.mark.parametrize(
    ("pattern", "result", "text"),
    [
        ((ADD, "a"), "a", "ADD has 2 sources, not 1"),
        ((NEG, "a:real"), "a", "'a:real' is not a name"),
        ((NEG, "a"), "b", "nothing binds 'b'"),
        ((NEG, "a"), lambda b: b, "asks for b, which nothing binds"),
        ((NEG, None), "a", "None is not a pattern"),
        ((NEG, "a"), (O.CAST, "a"), "CAST needs a function"),
    ],
)
def test_malformed_rules_are_named(pattern: Any, result: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text) as caught:
        compile_rules([rule("broken", pattern, result)]).generate()
    assert "broken" in str(caught.value)


def test_a_rule_must_start_from_an_op() -> None:
    with pytest.raises(GraphError, match="start from an op"):
        compile_rules([rule("broken", "a", "a")])


# -- the matcher -----------------------------------------------------------------------------------


def test_source_is_generated_on_demand_and_reads_like_a_decision() -> None:
    rules = [rule("one", (MUL, "a", 1), "a"), rule("two", (MUL, "a", 2), (ADD, "a", "a"))]
    matcher = compile_rules(rules)
    assert matcher._sources == {}
    assert matcher(op(MUL, x, num(1.0))) is x
    assert list(matcher._sources) == [MUL]
    assert matcher.source.count("n1.op == 40") == 1  # the test is shared
    assert "# two" in matcher.source and "def match_MUL(n):" in matcher.source


def test_ops_with_equal_rules_share_one_function() -> None:
    both = frozenset({SQRT, EXP})
    matcher = compile_rules([rule("one", (both, "#c"), lambda root: num(1))])
    assert "match_EXP = match_SQRT" in matcher.source
    assert matcher.table[EXP] is matcher.table[SQRT]


def test_a_hundred_rules_compile_fast() -> None:
    from svod.ir.rules import VALUE_RULES

    def seconds() -> float:
        start = time.perf_counter()
        compile_rules(VALUE_RULES).generate()
        return time.perf_counter() - start

    assert min([seconds() for _ in range(3)]) < 0.1  # 8 ms on an idle core


# -- the pass --------------------------------------------------------------------------------------

PLAIN = (
    rule("neg_neg", (NEG, (NEG, "a")), "a"),
    rule("mul_one", (MUL, "a", 1), "a"),
    rule("sqrt_twice", (SQRT, "a"), (EXP, (EXP, "a"))),
)


def test_rules_apply_until_none_matches() -> None:
    matcher = compile_rules(PLAIN)
    node = op(NEG, op(MUL, op(NEG, op(MUL, x, num(1.0))), num(1.0)))
    assert rewrite((node, y), matcher) == (x, y)
    assert rewrite((op(SQRT, op(SQRT, x)),), matcher) == (op(EXP, op(EXP, op(EXP, op(EXP, x)))),)


def test_roots_without_work_come_back_themselves() -> None:
    matcher = compile_rules(PLAIN)
    roots = (op(ADD, x, y), x)
    assert rewrite(roots, matcher) is roots
    assert rewrite((), matcher) == ()


def test_a_node_at_rest_is_not_visited_again() -> None:
    matcher = compile_rules(PLAIN)
    node = op(ADD, op(EXP, param(10)), op(MUL, param(11), num(1.0)))
    (result,) = rewrite((node,), matcher)
    before = stats.visits
    assert rewrite((result,), matcher) == (result,)
    assert stats.visits == before
    rewrite((op(NEG, op(EXP, result)),), matcher)
    assert stats.visits == before + 2
    other = compile_rules([rule("exp", (EXP, "a"), "a")])
    assert rewrite((result,), other) == (op(ADD, param(10), param(11)),)


def test_counters() -> None:
    stats.reset()
    a = param(20)
    rewrite((op(EXP, op(NEG, op(NEG, a))),), compile_rules(PLAIN))
    assert (stats.visits, stats.rewrites, stats.new_nodes) == (4, 1, 1)


def test_fresh_results_are_settled_below_and_above() -> None:
    matcher = compile_rules(
        [
            rule("lower", (EXP, "a"), (SQRT, (MUL, (NEG, (NEG, "a")), 1))),
            rule("neg_neg", (NEG, (NEG, "a")), "a"),
            rule("mul_one", (MUL, "a", 1), "a"),
            rule("sqrt", (SQRT, "a"), (NEG, "a")),
        ]
    )
    assert rewrite((op(EXP, x),), matcher) == (op(NEG, x),)
    assert rewrite((op(NEG, op(EXP, x)),), matcher) == (x,)


def test_a_context_is_given_to_rules_and_leaves_no_mark() -> None:
    matcher = compile_rules(
        [rule("bind", (PARAM,), lambda ctx, root: ctx.get(root))], "bind", context=True
    )
    node = op(ADD, op(NEG, x), y)
    assert rewrite((node,), matcher, {x: z}) == (op(ADD, op(NEG, z), y),)
    assert rewrite((node,), matcher, {y: z}) == (op(ADD, op(NEG, x), z),)
    assert rewrite((node,), matcher, {}) == (node,)
    assert matcher(x, {x: y}) is y


def test_index_arithmetic_stays_in_normal_form() -> None:
    i = make(O.RANGE, dt.index, (symbolic.num(8),), RangeArg(0, AxisKind.LOOP))
    j = make(O.RANGE, dt.index, (symbolic.num(4),), RangeArg(1, AxisKind.LOOP))
    k = make(O.RANGE, dt.index, (symbolic.num(2),), RangeArg(2, AxisKind.LOOP))
    split = symbolic.add(symbolic.mul(k, 4), j)
    matcher = compile_rules(
        [rule("split", (O.RANGE, "n"), lambda root: split if root is i else None)]
    )
    flat = symbolic.add(symbolic.mul(symbolic.idiv(i, 4), 10), symbolic.mod(i, 4))
    gate = symbolic.lt(i, 4)
    assert rewrite((flat, gate), matcher) == (
        symbolic.add(symbolic.mul(k, 10), j),
        symbolic.lt(split, 4),
    )
    both = (replace_all(flat, {i: split}), replace_all(gate, {i: split}))
    assert both == rewrite((flat, gate), matcher)


def test_deep_and_wide_graphs() -> None:
    depth = 100_000
    matcher = compile_rules(PLAIN)
    node = param(30)
    for _ in range(depth // 2):
        node = op(EXP, op(MUL, node, num(1.0)))
    (result,) = rewrite((node,), matcher)
    assert len(toposort((result,))) == depth // 2 + 1
    wide = make(SINK, dt.void, tuple([op(NEG, op(NEG, param(40 + i))) for i in range(5000)]))
    (flat,) = rewrite((wide,), matcher)
    assert flat.src == tuple([param(40 + i) for i in range(5000)])


def test_a_deep_fresh_result_is_settled() -> None:
    def tower(root: UOp, a: UOp) -> UOp:
        for _ in range(50_000):
            a = op(NEG, op(MUL, a, num(1.0)))
        return a

    matcher = compile_rules([rule("tower", (SQRT, "a"), tower), *PLAIN[:2]])
    assert rewrite((op(EXP, op(SQRT, x)),), matcher) == (op(EXP, x),)


def test_a_rule_may_unroll_itself() -> None:
    def peel(a: UOp, c: UOp) -> UOp | None:
        return None if c.arg < 2 else op(MUL, a, op(O.POW, a, num(c.arg - 1)))

    (result,) = rewrite(
        (op(O.POW, x, num(500)),), compile_rules([rule("peel", (O.POW, "a", "#c"), peel)])
    )
    assert len(toposort((result,))) == 502


LOOPS = {
    "swap": ([rule("swap", (SUB, "a", "b"), (SUB, "b", "a"))], "swap"),
    "two": ([rule("to", (SQRT, "a"), (EXP, "a")), rule("fro", (EXP, "a"), (SQRT, "a"))], "to, fro"),
    "inside": ([rule("wrap", (SQRT, "a"), (NEG, (SQRT, "a")))], "wrap"),
    "grow": ([rule("grow", (SQRT, "a"), (SQRT, (EXP, "a")))], "grow"),
    "count": ([rule("count", (SUB, "a", "#c"), lambda a, c: op(SUB, a, num(c.arg + 1)))], "count"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_names_its_rules_and_its_node(name: str) -> None:
    rules, fired = LOOPS[name]
    matcher = compile_rules([*PLAIN[:2], *rules], "looping")
    node = (
        op(SUB, x, num(1.0))
        if name == "count"
        else op(SUB, x, y)
        if name == "swap"
        else op(SQRT, x)
    )
    with pytest.raises(RewriteLoopError) as caught:
        rewrite((op(NEG, node),), matcher)
    text = str(caught.value)
    assert f"fired in the loop: {fired}." in text and "'looping'" in text
    assert O.NAMES[node.op] + " f32" in text


def test_a_loop_with_a_context_is_named_too() -> None:
    matcher = compile_rules([rule("flip", (SUB, "a", "b"), lambda ctx, a, b: ctx(b, a))], "c", True)
    with pytest.raises(RewriteLoopError, match="flip"):
        rewrite((op(SUB, x, y),), matcher, lambda a, b: op(SUB, a, b))


def test_a_pass_without_matches_is_fast() -> None:
    from svod.ir.rules import VALUES

    node = param(50)
    for i in range(3000):
        node = op(
            (EXP, ADD, MUL, MAX)[i % 4], *((node,) if i % 4 == 0 else (node, param(51 + i % 7)))
        )
    stats.reset()
    start = time.perf_counter()
    rewrite((node,), VALUES)
    spent = time.perf_counter() - start
    assert stats.rewrites == 0
    assert spent / stats.visits < 20e-6  # 0.4 us on an idle core


# -- nodes -----------------------------------------------------------------------------------------


def test_equal_structure_is_the_same_object() -> None:
    assert op(ADD, x, y) is op(ADD, x, y)
    assert op(ADD, x, y) is not op(ADD, y, x)
    assert num(0.0) is not num(-0.0)
    assert num(float("nan")) is num(float("nan"))
    assert const(1, i32) is not const(True, dt.bool_) and const(1, i32) is not const(1, dt.int64)


def test_threads_make_one_node() -> None:
    found: list[list[UOp]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        node, made = param(60), []
        for i in range(2000):
            node = op(ADD, node, num(i + 0.125))
            made.append(node)
        found.append(made)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for made in found for a, b in zip(made, found[0], strict=True))
    assert all(s.sn < node.sn for node in found[0] for s in node.src)


def test_sweep_drops_what_nobody_holds_and_keeps_the_rest() -> None:
    sweep()
    keep = op(EXP, op(NEG, param(70)))
    before = live_nodes()
    node = op(EXP, param(70))
    for i in range(1000):
        node = op(ADD, op(NEG, node), num(i + 0.70703125))
    del node
    assert live_nodes() > before + 2000
    assert sweep() >= 3000
    assert live_nodes() == before
    assert op(EXP, op(NEG, param(70))) is keep
    assert sweep() == 0


def test_sweep_drops_ranges_whose_sets_were_asked_for() -> None:
    sweep()
    before = live_nodes()
    i = make(O.RANGE, dt.index, (symbolic.num(77),), RangeArg(900, AxisKind.LOOP))
    total = symbolic.add(i, symbolic.num(5))
    assert total.ranges == {i} and i.ranges == {i}
    assert sweep() == 0  # all of it is held
    assert i.ranges == {i}
    del i, total
    sweep()
    assert live_nodes() == before


def test_sweep_while_other_threads_build() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def build() -> None:
        try:
            n = 0
            while not stop.is_set():
                n += 1
                held = op(EXP, num(n + 0.0625))
                assert held.src[0].arg == n + 0.0625
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    for _ in range(20):
        sweep()
    stop.set()
    thread.join()
    assert not failures


HASH_PROGRAM = """
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, ParamArg, RangeArg
from svod.ir.node import const, make
from svod.ir.symbolic import add, mul, num
for extra in range({extra}):  # another history: other creation numbers
    const(extra + 0.5, dt.float32)
x = make(O.PARAM, dt.float32, (), ParamArg(0, (3,)))
i = make(O.RANGE, dt.index, (num(5),), RangeArg(1, AxisKind.REDUCE))
load = make(O.LOAD, dt.float32, (make(O.INDEX, dt.float32, (x, add(mul(i, 3), num(1)))),))
root = make(O.ADD, dt.float32, (load, const({value}, dt.float32)))
print(root.content_hash)
"""


def test_content_hash_is_the_same_in_every_process() -> None:
    def run(extra: int, value: str, seed: str) -> str:
        program = HASH_PROGRAM.format(extra=extra, value=value)
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first = run(0, "0.0", "1")
    assert len(first) == 32
    assert run(1000, "0.0", "2") == first
    assert run(0, "-0.0", "1") != first


def test_toposort_puts_sources_first() -> None:
    node = op(ADD, op(MUL, x, y), op(NEG, x))
    order = node.toposort()
    assert set(order) == {x, y, *node.src, node} and len(order) == 5
    assert all(order.index(s) < order.index(n) for n in order for s in n.src)


def test_substitution_does_not_search_replacements() -> None:
    node = op(ADD, op(NEG, x), y)
    for replace in (nodes.substitute, lambda roots, by: tuple(replace_all(r, by) for r in roots)):
        assert replace((node,), {x: op(EXP, x)}) == (op(ADD, op(NEG, op(EXP, x)), y),)
        assert replace((node,), {x: y, y: x}) == (op(ADD, op(NEG, y), x),)
        assert replace((node, x), {z: x}) == (node, x)
        assert replace((node,), {node: z}) == (z,)


def test_deep_graphs_have_shapes_ranges_and_hashes() -> None:
    node = param(80, f32, (2,))
    for _ in range(100_000):
        node = op(NEG, node)
    assert node.shape == (2,)
    assert node.ranges == frozenset()
    assert len(node.content_hash) == 32
    assert nodes.substitute((node,), {param(80, f32, (2,)): param(81, f32, (2,))})[0].shape == (2,)
    assert len(list(nodes.depth_first(node))) == 100_001
    assert CONST not in {n.op for n in node.toposort()}
