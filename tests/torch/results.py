"""What torch says: computed now where that torch is installed, else read from the recorded file.

The record holds, for each case and dtype, the values and dtypes of all outputs, the gradients of
all float inputs, or the class of the error. ``python -m tests.torch.record`` writes it.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tests.torch.case import Array, Case, Torch, weights

FILE = Path(__file__).with_name("recorded.npz")
RELEASE = "2.13"  # of torch that the record is of; another may know less


def _has_torch() -> bool:
    with contextlib.suppress(PackageNotFoundError):
        return version("torch").startswith(RELEASE)
    return False


HAS_TORCH = _has_torch()


def key_of(case: Case, place: int, dtype: str) -> str:
    """The name of a result in the record."""
    return f"{case.name} {place} {dtype} {case.digest()}"


class TorchResults:
    """Results computed by torch now."""

    def __init__(self) -> None:
        self.library = Torch()

    def outputs(self, case: Case, place: int, dtype: str) -> list[tuple[str, Array]]:
        lib = self.library
        form = case.forms[:1] or lib.forms(case.name)[:1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = lib.outputs(lib.call(case, form, lib.inputs(case, dtype)))
        return [lib.array(o) for o in found]

    def gradients(self, case: Case, place: int) -> list[Array] | None:
        """One per float input; None where torch has no gradient."""
        lib = self.library
        inputs = lib.inputs(case, "float64")
        places = [i for i, t in enumerate(inputs) if t.is_floating_point() and case.data()[i].grad]
        inputs = [t.requires_grad_() if i in places else t for i, t in enumerate(inputs)]
        form = case.forms[:1] or lib.forms(case.name)[:1]
        given = [t.clone() if case.name.endswith("_") else t for t in inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = lib.outputs(lib.call(case, form, given))
        total: Any = None
        for o in found:
            if isinstance(o, lib.module.Tensor) and o.is_floating_point() and o.requires_grad:
                part = (o * lib.module.from_numpy(weights(tuple(o.shape)))).sum()
                total = part if total is None else total + part
        if total is None:
            return None
        total.backward()
        zero = [lib.module.zeros_like(inputs[i]) for i in places]
        return [
            (z if inputs[i].grad is None else inputs[i].grad).detach().contiguous().numpy()
            for i, z in zip(places, zero, strict=True)
        ]

    def error(self, case: Case, place: int) -> str | None:
        lib = self.library
        form = case.forms[:1] or lib.forms(case.name)[:1]
        with warnings.catch_warnings(), contextlib.suppress(ImportError):
            warnings.simplefilter("ignore")
            try:
                lib.call(case, form, lib.inputs(case, case.dtypes[0]))
            except Exception as error:
                known = (IndexError, TypeError, NotImplementedError, ValueError, RuntimeError)
                return next((k.__name__ for k in known if isinstance(error, k)), "Exception")
        return None


class RecordedResults:
    """Results kept in a file."""

    def __init__(self) -> None:
        with np.load(FILE) as kept:
            self.index: dict[str, Any] = json.loads(bytes(kept["index"]).decode())
            self.data = bytes(kept["data"])

    def _entry(self, key: str) -> Any:
        if key not in self.index:
            raise AssertionError(f"{key!r} is not recorded: run python -m tests.torch.record")
        return self.index[key]

    def _array(self, where: list[Any]) -> tuple[str, Array]:
        name, kept, shape, start, size = where
        return name, np.frombuffer(self.data[start : start + size], kept).reshape(shape)

    def outputs(self, case: Case, place: int, dtype: str) -> list[tuple[str, Array]]:
        return [self._array(w) for w in self._entry(key_of(case, place, dtype))]

    def gradients(self, case: Case, place: int) -> list[Array] | None:
        found = self._entry(key_of(case, place, "gradient"))
        return None if found is None else [self._array(w)[1] for w in found]

    def error(self, case: Case, place: int) -> str | None:
        return self._entry(key_of(case, place, "error"))  # type: ignore[no-any-return]

    def forms(self, name: str) -> str:
        return str(self._entry("forms")[name])

    def signatures(self) -> dict[str, list[str]]:
        return dict(self._entry("signatures"))
