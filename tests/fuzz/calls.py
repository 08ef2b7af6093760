"""Calls of every public function with arguments that fit badly or not at all.

What is public is found by looking: the ``svod`` namespace and its modules, methods of tensors,
modules, optimizers, schedules and initialisers. A call may succeed, or raise an error of Svod's
that is also a ``ValueError``, ``TypeError`` or ``IndexError``; anything else is a failure.
``python -m tests.fuzz.calls 200 linalg`` calls each function with "linalg" in its name 200 times.
"""

from __future__ import annotations

import inspect
import random
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import svod
from svod import Tensor, nn
from svod.base.errors import AllocationError, DeviceError, ExecutionError, SvodError
from svod.tensor.gradients.autograd import GradientError

EXPECTED = (ValueError, TypeError, IndexError, NotImplementedError)
# RuntimeError and MemoryError, as in torch; a singular matrix shows when the plan runs.
OTHER = (DeviceError, GradientError, AllocationError, ExecutionError)
SKIPPED = {
    "svod.ExecutionPlan",  # made by prepare
    "svod.DType",
    "svod.Size",  # a tuple, with its errors
    "svod.MemoryMode",  # an enum, with its errors
    "svod.Strategy",
    "svod.register_device",  # what devices there are is the same for all calls
    "svod.nn.Function",
    "svod.set_threads",
}
MODULES = (
    "linalg",
    "special",
    "fft",
    "nn.functional",
    "nn.init",
    "nn.optim",
    "nn.state",
    "nn.utils",
)
SHAPES = ((), (0,), (1,), (3,), (4,), (2, 3), (3, 3), (0, 2), (2, 3, 4), (1, 2, 5, 5), (2, 2, 3, 3))
DTYPES = (
    "float32",
    "float64",
    "float16",
    "int64",
    "int32",
    "uint8",
    "bool",
    "bfloat16",
    "complex64",
)
WORDS = ("mean", "sum", "none", "constant", "reflect", "ij,jk->ik", "", "nowhere", "float32", "CPU",
         "linear", "bilinear", "nearest", "tanh", "amax", "fro", "complete", "ceil")  # fmt: skip


class Pick(random.Random):
    """Arguments, plausible and not."""

    def array(self) -> Any:
        shape = self.choice(SHAPES)
        count = int(np.prod(shape))
        values = [self.uniform(-3, 3) for _ in range(count)]
        return np.array(values, np.float32).reshape(shape)

    def tensor(self) -> Tensor:
        dtype = self.choice(DTYPES) if self.random() < 0.5 else "float32"
        x = Tensor(self.array())
        if dtype.startswith("u"):
            x = x.abs()
        found = x.cast(getattr(svod, dtype))
        return found.requires_grad_() if dtype == "float32" and self.random() < 0.1 else found

    def whole(self) -> int:
        return self.choice((-100, -2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 7))

    def number(self) -> float:
        return self.choice(
            (-1.5, 0.0, 0.1, 0.5, 1.0, 2.0, float("nan"), float("inf"), -float("inf"))
        )

    def sizes(self) -> Any:
        found = [self.whole() for _ in range(self.randrange(4))]
        return self.choice((list, tuple))(found)

    def odd(self) -> Any:
        """Something no function expects."""
        return self.choice((
            object(), {}, {"a": 1}, 1j, b"ab", "word", [[1, 2], [3]], [None], slice(1, 2), ...,
            lambda *a: a, np.float64(2), np.array([1j]), np.array(["a"]), range(3), set(),
            Exception, 10**30, [10**30], np.array([{}]), (2, "a"), Tensor,
        ))  # fmt: skip

    def anything(self) -> Any:
        makers: tuple[Callable[[], Any], ...] = (
            self.tensor, self.tensor, self.whole, self.number, self.sizes, self.odd, self.array,
            lambda: None, lambda: self.choice(WORDS), lambda: self.random() < 0.5,
            lambda: [self.tensor() for _ in range(self.randrange(3))],
            lambda: getattr(svod, self.choice(DTYPES)),
        )  # fmt: skip
        return self.choice(makers)()

    def fitting(self, parameter: inspect.Parameter) -> Any:
        """A value of the kind a parameter asks for, not always of a value that makes sense."""
        wanted = str(parameter.annotation)
        if "dtype" in parameter.name:
            return getattr(svod, self.choice(DTYPES))
        if parameter.name == "params" or "Iterable[Any]" in wanted:
            return [Tensor(self.array(), requires_grad=True) for _ in range(2)]
        if "Optimizer" in wanted:
            return nn.optim.SGD([Tensor([1.0, 2.0], requires_grad=True)], lr=0.1)
        for word, make in (
            ("Callable", lambda: self.choice((lambda *a: a[-1:], lambda *a: 1.0, None, 3))),
            ("Sequence[Tensor]", lambda: [self.tensor() for _ in range(self.randrange(4))]),
            ("Tensor", self.tensor), ("Operand", self.tensor),
            ("bool", lambda: self.random() < 0.5),
            ("Axis", lambda: self.choice((self.whole, self.sizes))()),
            ("Sequence", self.sizes), ("tuple", self.sizes), ("str", lambda: self.choice(WORDS)),
            ("int", self.whole), ("float", self.number), ("Scalar", self.number),
        ):  # fmt: skip
            if word in wanted:
                return make()
        return self.choice((self.tensor, self.whole, self.sizes, self.number))()

    def arguments(self, signature: inspect.Signature) -> tuple[list[Any], dict[str, Any]]:
        """Arguments for a signature; some are odd, and sometimes one is missing or too many."""
        given: list[Any] = []
        named: dict[str, Any] = {}
        oddness = self.choice((0.0, 0.0, 0.1, 0.3))
        for p in signature.parameters.values():
            if p.kind == p.VAR_KEYWORD:
                continue
            if p.kind == p.VAR_POSITIONAL:
                given += [self.fitting(p) for _ in range(self.randrange(3))]
                continue
            is_optional = p.default is not p.empty
            if is_optional and self.random() < 0.7:
                continue
            value = self.anything() if self.random() < oddness else self.fitting(p)
            if is_optional or p.kind == p.KEYWORD_ONLY:
                if p.kind == p.POSITIONAL_ONLY:
                    break
                named[p.name] = value
            else:
                given.append(value)
        if self.random() < 0.05:
            given = given[:-1] if self.random() < 0.5 else [*given, self.anything()]
        if self.random() < 0.03:
            named["no_such_option"] = 1
        return given, named


# -- what is public --------------------------------------------------------------------------------


def targets() -> Iterator[tuple[str, Any]]:
    """Every public callable under its name; classes among them are called and then used."""
    yield from _members("svod", svod)
    for path in MODULES:
        module: Any = svod
        for part in path.split("."):
            module = getattr(module, part, None)
        if module is not None:
            yield from _members(f"svod.{path}", module)
    yield from _members("svod.nn", nn)
    for name in dir(Tensor):
        if not name.startswith("_") or name in ("__getitem__", "__setitem__", "__contains__"):
            member = inspect.getattr_static(Tensor, name)
            if not isinstance(member, property) and callable(getattr(Tensor, name)):
                yield f"svod.Tensor.{name}", getattr(Tensor, name)


def _members(prefix: str, module: Any) -> Iterator[tuple[str, Any]]:
    listed = getattr(module, "__all__", None) if prefix != "svod" else dir(svod)
    for name in listed or dir(module):
        found = getattr(module, name)
        is_own = listed is not None or getattr(found, "__module__", "") == module.__name__
        if is_own and not name.startswith("_") and callable(found):
            yield f"{prefix}.{name}", found


def public() -> dict[str, Any]:
    """The targets by name, each once, without those that are no functions to call."""
    found: dict[str, Any] = {}
    known: set[int] = set()
    for name, target in targets():
        is_error = inspect.isclass(target) and issubclass(target, BaseException)
        if id(target) in known or name in SKIPPED or is_error:
            continue
        known.add(id(target))
        found[name] = target
    return found


# -- calling ---------------------------------------------------------------------------------------


def failures(name: str, target: Any, calls: int, realized: int) -> list[str]:
    """What went wrong in so many calls; every ``realized``-th result is computed as well."""
    found = []
    for number in range(calls):
        pick = Pick(zlib.crc32(name.encode()) + 7919 * number)
        given, named = _arguments(pick, target)
        if name.startswith("svod.Tensor."):
            given[:1] = [pick.tensor()]
        wrong = _call(name, target, pick, given, named, number % realized == 0)
        if wrong:
            found.append(f"{name}{_shown(given, named)}\n    {wrong}")
    return found


def _arguments(pick: Pick, target: Any) -> tuple[list[Any], dict[str, Any]]:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return [pick.anything() for _ in range(pick.randrange(3))], {}
    return pick.arguments(signature)


def _call(
    name: str, target: Any, pick: Pick, given: list[Any], named: dict[str, Any], realize: bool
) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = target(*given, **named)
            _use(result, pick)
            if realize:
                _compute(result)
    except SvodError as error:
        if isinstance(error, (*EXPECTED, *OTHER)) and str(error).strip():
            return None
        return f"{type(error).__mro__[:3]}: {error!s:.200}"
    except OSError:  # a file that is not there
        return None if "load" in name or "save" in name or "state" in name else "OSError"
    except Exception as error:
        return f"{_place(error)}{type(error).__name__}: {error!s:.200}"
    return None


def _use(result: Any, pick: Pick) -> None:
    """Use what a class or a factory made: modules are called, optimizers step."""
    if isinstance(result, nn.Module) and type(result).forward is not nn.Module.forward:
        given, named = pick.arguments(inspect.signature(result.forward))
        result(*given, **named)
        result.state_dict()
    elif isinstance(result, nn.optim.Optimizer):
        for group in result.param_groups:
            for p in group["params"]:
                p.grad = Tensor(np.ones(p.shape, np.float32))
        result.step()
    elif isinstance(result, nn.schedules.LRScheduler):
        result.step()
    elif inspect.isfunction(result) or type(result).__name__ == "Jit":
        result(*[pick.anything() for _ in range(pick.randrange(3))])


def _compute(result: Any) -> None:
    if isinstance(result, Tensor) and result.numel() < 10_000:
        result.numpy()
    elif isinstance(result, (list, tuple)):
        for part in result:
            _compute(part)


def _place(error: BaseException) -> str:
    lines = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f"{code.co_filename.rpartition('/svod/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{lines[-1]} "


def _shown(given: list[Any], named: dict[str, Any]) -> str:
    parts = [_value(v) for v in given] + [f"{k}={_value(v)}" for k, v in named.items()]
    return f"({', '.join(parts)})"


def _value(v: Any) -> str:
    if isinstance(v, Tensor):
        return f"{v.dtype!r}{list(v.shape)}"
    if isinstance(v, np.ndarray):
        return f"np.{v.dtype}{list(v.shape)}"
    if isinstance(v, list):
        return f"[{', '.join([_value(x) for x in v])}]"
    return f"{v!r:.40}"


def run(calls: int, realized: int, part: str = "") -> list[str]:
    """All failures of all targets whose name has this part."""
    found: list[str] = []
    for name, target in public().items():
        if part in name:
            found += failures(name, target, calls, realized)
    return found


if __name__ == "__main__":
    wrong = run(int(sys.argv[1]), 5, sys.argv[2] if len(sys.argv) > 2 else "")
    print("\n".join(wrong))
    print(f"{len(wrong)} failures")
