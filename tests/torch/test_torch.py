"""Every torch name we have gives what torch gives: values, dtypes, gradients, errors.

Runs against torch when it is there, and against recorded results otherwise; see ``results``.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import pytest

import svod
from svod.base.errors import SvodError
from svod.testing import gradcheck
from tests.torch.case import Case, Data, Svod, close, weights
from tests.torch.cases import BAD, CASES, places
from tests.torch.differences import DTYPES, LEFT_OUT, STANDARD
from tests.torch.results import FILE, HAS_TORCH, RecordedResults, TorchResults

WANTED = 450  # distinct names that must be compared

Numbered = list[tuple[int, Case]]


def by_name(cases: list[Case]) -> dict[str, Numbered]:
    found: dict[str, Numbered] = defaultdict(list)
    for place, case in zip(places(cases), cases, strict=True):
        found[case.name].append((place, case))
    return dict(found)


GOOD, REFUSED = by_name(CASES), by_name(BAD)
WITH_GRADIENT = sorted({c.name for c in CASES if c.grad})
WITH_DIFFERENCES = sorted({c.name for c in CASES if c.grad and c.differences})


@cache
def recorded() -> RecordedResults:
    return RecordedResults()


@cache
def results() -> Any:
    return TorchResults() if HAS_TORCH else recorded()


@cache
def ours() -> Svod:
    return Svod()


def forms_of(case: Case) -> str:
    """How a case is called: as torch allows, less what follows the standard instead."""
    forms = case.forms or recorded().forms(case.name)
    kept = "".join([f for f in forms if (case.name, f) not in STANDARD])
    assert kept, f"{case.name}: no form is left to compare"
    return kept


@pytest.mark.parametrize("name", sorted(GOOD))
def test_values(name: str) -> None:
    lib = ours()
    problems = []
    pending: list[tuple[str, Case, list[Any], list[tuple[str, Any]]]] = []
    for place, case in GOOD[name]:
        for dtype in case.dtypes:
            wanted = results().outputs(case, place, dtype)
            seen: list[list[Any]] = []
            for form in forms_of(case):
                found = lib.outputs(lib.call(case, form, lib.inputs(case, dtype)))
                what = f"{form}:{name} #{place} {dtype}"
                if len(found) != len(wanted):
                    problems.append(f"{what}: {len(found)} results, torch has {len(wanted)}")
                elif not any(same(found, s) for s in seen):
                    seen.append(found)
                    pending.append((what, case, found, wanted))
    tensors = [o for _, _, found, _ in pending for o in found if isinstance(o, svod.Tensor)]
    if tensors:
        svod.realize(*[t for t in tensors if t.numel()])
    for what, case, found, wanted in pending:
        for got, (kind, values) in zip(found, wanted, strict=True):
            problem = compare(case, got, kind, values)
            if problem:
                problems.append(f"{what}: {problem}")
    assert not problems, "\n".join(problems)


def same(a: list[Any], b: list[Any]) -> bool:
    """Whether two lists of results are the same nodes, so that one of them is enough."""
    return all(
        isinstance(x, svod.Tensor) and isinstance(y, svod.Tensor) and x.uop is y.uop
        for x, y in zip(a, b, strict=True)
    )


def compare(case: Case, got: Any, kind: str, values: Any) -> str:
    name, array = ours().array(got)
    if not case.values:
        if kind == "python":
            return ""
        problem = "" if array.shape == values.shape else f"shape {array.shape}, {values.shape}"
        return problem or ("" if name == kind else f"{name}, torch has {kind}")
    if name != kind and DTYPES.get((case.name, kind)) != name:
        return f"{name}, torch has {kind}"
    if kind == "python":
        return "" if np.array_equal(array, values) else f"{array}, torch has {values}"
    return close(array, values, kind, case.tolerance)


def graph(case: Case) -> tuple[list[Any], list[int], list[Any]]:
    """Inputs in float64, the places of those with a gradient, and the outputs."""
    lib = ours()
    inputs = lib.inputs(case, "float64")
    data = case.data()
    wanted = [i for i, t in enumerate(inputs) if t.dtype.kind == "f" and data[i].grad]
    for i in wanted:
        inputs[i] = inputs[i].contiguous().realize().requires_grad_()
    form = forms_of(case)[0]
    return inputs, wanted, lib.outputs(lib.call(case, form, list(inputs)))


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_gradients(name: str) -> None:
    problems, pending = [], []
    for place, case in GOOD[name]:
        if not case.grad:
            continue
        expected = results().gradients(case, place)
        if expected is None:
            continue
        inputs, wanted, outputs = graph(case)
        total: Any = None
        for o in outputs:
            if isinstance(o, svod.Tensor) and o.dtype.kind == "f":
                part = (o * svod.Tensor(weights(o.shape))).sum()
                total = part if total is None else total + part
        assert total is not None, f"{name} #{place}: no floats came back"
        if any(np.any(e) for e in expected) or total.requires_grad:
            total.backward()
        for i, e in zip(wanted, expected, strict=True):
            pending.append((f"{name} #{place} input {i}", case, inputs[i], e))
    grads = [t.grad for _, _, t, _ in pending if t.grad is not None]
    if grads:
        svod.realize(*[g for g in grads if g.numel()])
    for what, case, t, e in pending:
        got = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
        problem = close(got, e, "float64", 10 * case.gradient_tolerance)
        if problem:
            problems.append(f"{what}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", WITH_DIFFERENCES)
def test_finite_differences(name: str) -> None:
    lib = ours()
    done = 0
    for _, case in GOOD[name]:
        if not (case.grad and case.differences) or done == 2:
            continue
        data = case.data()
        if sum([int(np.prod(d.shape)) for d in data if d.dtype is None]) > 120:
            continue
        form = forms_of(case)[0]
        inputs = lib.inputs(case, "float64")
        moved = [i for i, t in enumerate(inputs) if t.dtype.kind == "f" and data[i].grad]

        def call(
            *given: Any,
            case: Case = case,
            inputs: Any = inputs,
            moved: Any = moved,
            form: str = form,
        ) -> Any:
            args = list(inputs)
            for i, t in zip(moved, given, strict=True):
                args[i] = t
            found = lib.outputs(lib.call(case, form, args))
            return [o for o in found if isinstance(o, svod.Tensor) and o.dtype.kind == "f"]

        if moved:
            gradcheck(call, [inputs[i] for i in moved], rtol=2e-4, atol=2e-6, compiled=False)
            done += 1


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_errors(name: str) -> None:
    lib = ours()
    problems = []
    for place, case in REFUSED[name]:
        wanted = results().error(case, place)
        assert wanted is not None, f"{name} #{place}: torch takes it"
        what = f"{name} #{place} {case.args} {case.options}"
        try:
            found = lib.outputs(lib.call(case, forms_of(case)[0], lib.inputs(case, case.dtypes[0])))
        except SvodError as error:
            kinds = [k.__name__ for k in type(error).__mro__]
            # torch's NotImplementedError, for a dtype or mode it has not, is a RuntimeError
            if wanted not in kinds and (wanted, "RuntimeError" in kinds) != (
                "NotImplementedError",
                True,
            ):
                problems.append(f"{what}: {type(error).__name__}: {error}; torch: {wanted}")
        except TypeError as error:  # a call that does not fit the signature
            if wanted not in ("TypeError", "RuntimeError"):
                problems.append(f"{what}: TypeError: {error}; torch: {wanted}")
        except Exception as error:
            problems.append(f"{what}: {type(error).__name__}: {error}; torch: {wanted}")
        else:
            problems.append(
                f"{what}: no error, {[getattr(f, 'shape', f) for f in found]}; torch: {wanted}"
            )
    assert not problems, "\n".join(problems)


def test_many_names_are_compared() -> None:
    assert len(GOOD) >= WANTED
    assert len({n for n in GOOD if not n.endswith("_")}) >= 400


def test_every_form_of_a_name_is_there() -> None:
    lib = ours()
    missing = []
    for name in GOOD:
        for form in recorded().forms(name):
            if form not in lib.forms(name) and (name, form) not in STANDARD | LEFT_OUT.keys():
                missing.append(f"{form}:{name}")
    assert not missing, missing


def test_functional_takes_the_arguments_of_torch() -> None:
    functional = ours().functional
    wrong = []
    for name, arguments in recorded().signatures().items():
        if (name, "f") in LEFT_OUT or name.startswith(
            ("has_torch", "handle_", "boolean_", "assert_")
        ):
            continue
        if not hasattr(functional, name):
            wrong.append(f"{name}: missing")
            continue
        mine = list(signature(getattr(functional, name)).parameters)
        if mine != arguments and mine != ["args", "options"]:
            wrong.append(f"{name}: {mine}, torch has {arguments}")
    assert not wrong, "\n".join(wrong)


def test_the_record_is_small_and_whole() -> None:
    assert FILE.stat().st_size < 4e6
    for cases in (GOOD, REFUSED):
        for name, numbered in cases.items():
            for place, case in numbered:
                for dtype in case.dtypes if cases is GOOD else ():
                    assert recorded().outputs(case, place, dtype) is not None, name


def test_a_wrong_value_is_noticed() -> None:
    """The comparison itself can fail."""
    case = Case("sin", (Data((3,)),))
    assert compare(case, svod.Tensor([1.0, 2.0, 3.0]), "float32", np.array([1, 2, 4], np.float32))
    assert compare(case, svod.Tensor([1.0, 2.0]), "float32", np.array([1, 2, 4], np.float32))
    assert compare(case, svod.Tensor([1, 2, 4]), "float32", np.array([1, 2, 4], np.float32))
    assert not compare(case, svod.Tensor([1.0, 2.0]), "float32", np.array([1, 2], np.float32))
