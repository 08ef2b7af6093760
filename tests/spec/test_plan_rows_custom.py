"""T13, Q17: custom functions."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from svod.base.errors import ConfigError, ExecutionError, UnsupportedError
from svod.ir.node import variable
from svod.runtime import (
    PreparedCopy,
    PreparedCustomFunction,
    register_custom_function,
    registered_custom_functions,
    unregister_custom_function,
)
from tests.spec.plan_parts import (
    Calls,
    buffer,
    compiled,
    double,
    empty,
    floats,
    launch,
    native,
    native_functions,
    plan_of,
)


@pytest.fixture
def register():
    kinds = []

    def add(kind, implementation, **facts):
        kinds.append(kind)
        return register_custom_function(kind, implementation, **facts)

    yield add
    for kind in kinds:
        unregister_custom_function(kind)


@pytest.mark.row("T13", "Q17")
def test_encdec_is_known_and_unsupported():
    attrs = ("h264", 25, variable("frames", 1, 9))
    op = PreparedCustomFunction(1, "EncDec", attrs, [0])
    plan = plan_of([empty()], [op])
    assert plan.prepared_ops()[0].attrs == attrs
    with pytest.raises(UnsupportedError) as caught:
        plan.execute()
    assert caught.value.kind == "EncDec"
    assert str(caught.value) == (
        "unsupported EncDec: Svod knows this kind but has no implementation of the custom "
        "function EncDec (3 attrs); give one with register_custom_function"
    )
    assert not isinstance(caught.value, ExecutionError), "passed through unwrapped"


@pytest.mark.row("Q17")
def test_an_unregistered_kind_raises_the_typed_error(register):
    plan = plan_of([empty()], [PreparedCustomFunction(1, "SpecLater", (), [0])])
    with pytest.raises(UnsupportedError, match=r"there is no implementation of .* SpecLater") as e:
        plan.execute()
    assert e.value.kind == "SpecLater"
    seen = []
    register("SpecLater", lambda *args: seen.append(1))
    plan.execute()  # an implementation may come after the plan
    assert seen == [1] and "SpecLater" in registered_custom_functions()


@pytest.mark.row("Q17")
def test_python_implementations_get_buffers_attributes_and_values(register):
    def scale(buffers, attrs, values):
        target, source = buffers
        target.numpy()[:] = source.numpy() * attrs[0] + values["n"]

    register("SpecScale", scale)
    op = PreparedCustomFunction(2, "SpecScale", (10, variable("n", 0, 9)), [1, 0])
    plan = plan_of([buffer(1, 2, 3, 4), empty()], [op])
    plan.execute_with_vars({"n": 3})
    assert plan.output_buffer().copyout().tolist() == [13, 23, 33, 43]


@pytest.mark.row("Q17")
def test_encdec_can_be_implemented(register):
    register("EncDec", lambda buffers, attrs, values: buffers[0].copyin(np.ones(4, np.float32)))
    plan = plan_of([empty()], [PreparedCustomFunction(1, "EncDec", (), [0])])
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [1] * 4


@pytest.mark.row("Q17")
def test_ctypes_implementations(register):
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

    @signature
    def fill(buffers, values, core):
        address = ctypes.c_void_p.from_address(buffers).value
        floats(address)[:] = ctypes.c_int64.from_address(values).value

    register("SpecFill", fill, var_names=["n"])
    plan = plan_of([empty()], [PreparedCustomFunction(1, "SpecFill", (variable("n", 2, 9),), [0])])
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [2] * 4
    plan.execute_with_vars({"n": 7})
    assert plan.output_buffer().copyout().tolist() == [7] * 4


@pytest.mark.row("Q17")
def test_native_functions_stay_inside_the_native_call(register):
    register("SpecAdd", native_functions()["add"])
    ops = [
        launch(1, native("add"), [0, 0, 1]),
        PreparedCustomFunction(2, "SpecAdd", (), [1, 0, 2], {}, [1]),
    ]
    plan = plan_of([buffer(1, 2, 3, 4), empty(), empty()], ops)
    assert plan.is_native
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [3, 6, 9, 12]


@pytest.mark.row("Q17")
def test_a_native_function_without_a_value_says_so(register):
    register("SpecNeedy", native_functions()["core"], var_names=["m"])
    plan = plan_of([empty()], [PreparedCustomFunction(1, "SpecNeedy", (), [0])])
    with pytest.raises(ExecutionError, match=r"no value for m; give it to execute_with_vars"):
        plan.execute()
    plan.execute_with_vars({"m": 6})
    assert plan.output_buffer().copyout()[0] == 6


@pytest.mark.row("Q17")
def test_python_functions_between_native_kernels(register):
    def negate(buffers, attrs, values):
        buffers[0].numpy()[:] *= -1

    register("SpecNegate", negate)
    ops = [
        launch(1, native("add"), [0, 0, 1]),
        PreparedCustomFunction(2, "SpecNegate", (), [1], {}, [1]),
        launch(3, native("add"), [1, 0, 2], after=[2]),
        PreparedCopy(4, [3, 2], [3]),
    ]
    plan = plan_of([buffer(1, 2, 3, 4), empty(), empty(), empty()], ops)
    assert not plan.is_native, "a run returns to Python in between"
    for _ in range(2):
        plan.execute()
        assert plan.output_buffer().copyout().tolist() == [-1, -2, -3, -4]
    assert len(plan.execute_profiled()) == 2


@pytest.mark.row("Q17")
@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [("", print, "needs a kind"), ("SpecBad", 3.5, "must be callable"),
     ("SpecBad", 0, "is not the address of a function"), ("SpecBad", "text", "must be callable")],
)  # fmt: skip
def test_what_cannot_be_an_implementation(kind, given, message):
    with pytest.raises(ConfigError, match=message):
        register_custom_function(kind, given)


@pytest.mark.row("Q17")
def test_a_kind_is_not_replaced_by_accident(register):
    seen = []
    register("SpecTwice", lambda *args: seen.append("first"))
    with pytest.raises(ConfigError, match=r"'SpecTwice' is already registered; use replace=True"):
        register("SpecTwice", lambda *args: seen.append("second"))
    plan = plan_of([empty()], [PreparedCustomFunction(1, "SpecTwice", (), [0])])
    plan.execute()
    register("SpecTwice", lambda *args: seen.append("second"), replace=True)
    plan.execute()
    assert seen == ["first", "second"]
    assert unregister_custom_function("SpecTwice") and not unregister_custom_function("SpecTwice")


def test_custom_functions_run_between_programs_of_python(register):
    register("SpecNote", lambda buffers, attrs, values: seen.append(buffers[0].copyout()[0]))
    seen = []
    ops = [
        launch(1, compiled(Calls(double)), [0, 1]),
        PreparedCustomFunction(2, "SpecNote", (), [1], {}, [1]),
    ]
    plan_of([buffer(1, 2, 3, 4), empty()], ops).execute()
    assert seen == [2]
