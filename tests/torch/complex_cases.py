"""The cases of torch's names with complex inputs, and what torch says about them.

Every case whose inputs are floats runs with complex128 in place of them. ``python -m
tests.torch.complex_cases`` writes what torch gives, values and gradients, or that it refuses.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from svod.tensor.gradients.autograd import GradientError
from tests.torch.case import Array, Case, Data, Library, Svod, Torch, weights
from tests.torch.cases import CASES, places
from tests.torch.differences import STANDARD
from tests.torch.record import Writer

FILE = Path(__file__).with_name("recorded_complex.npz")


def is_complex_case(case: Case) -> bool:
    """Whether a case has inputs that can be complex, all of them finite."""
    floats = [d for d in case.data() if d.dtype is None]
    if not floats or "float64" not in case.dtypes or not case.values:
        return False
    return all(d.values is None or np.isfinite(np.array(d.values)).all() for d in floats)


COMPLEX_CASES = [
    (place, case) for place, case in zip(places(CASES), CASES, strict=True) if is_complex_case(case)
]


def key_of(place: int, case: Case) -> str:
    """A case by name, number and content."""
    return f"{case.name}/{place}/{case.digest()}"


def complex_inputs(library: Library, case: Case) -> list[Any]:
    """The inputs; what is float64 elsewhere has an imaginary part."""
    found = []
    for place, d in enumerate(case.data()):
        if d.dtype is not None:
            found.append(library.tensor(d.array(d.dtype, place), d.dtype))
            continue
        re, im = d.array("float64", place), d.array("float64", place + 1000)
        found.append(library.tensor(re + 0.7j * im, "complex128"))
    return found


def form_of(library: Library, case: Case) -> str:
    """The first form in which both libraries have the name."""
    forms = case.forms or library.forms(case.name)
    order = "mtf" if isinstance(case.args[0], Data) else "tfm"
    found = [f for f in (*order, *forms) if f in forms and (case.name, f) not in STANDARD]
    return found[0]


def weighted(library: Library, case: Case, inputs: list[Any]) -> Any:
    """One number from all float and complex outputs, or None."""
    total: Any = None
    for output in library.outputs(library.call(case, form_of(library, case), inputs)):
        kind = str(getattr(output, "dtype", ""))
        if "float64" not in kind and "complex128" not in kind and kind not in ("f64", "c128"):
            continue
        w = library.tensor(weights(tuple(output.shape)), "float64")
        part = (output.real * w).sum()
        if "complex128" in kind or kind == "c128":
            part = part + (output.imag * w.flip(0) if w.ndim else output.imag * w).sum() * 0.5
        total = part if total is None else total + part
    return total


def values(library: Library, case: Case) -> list[Array]:
    """The outputs as arrays."""
    made = library.call(case, form_of(library, case), complex_inputs(library, case))
    return [library.array(o)[1] for o in library.outputs(made)]


def torch_gradients(library: Torch, case: Case) -> list[Array] | None:
    """Those of the complex inputs, or None where torch has none."""
    inputs = complex_inputs(library, case)
    asked = [x.requires_grad_() for x in inputs if x.is_complex()]
    total = weighted(library, case, inputs)
    if total is None or not total.requires_grad:
        return None
    found = library.module.autograd.grad(total, asked, allow_unused=True)
    return [
        np.zeros(tuple(x.shape), np.complex128) if g is None else g.resolve_conj().numpy()
        for x, g in zip(asked, found, strict=True)
    ]


def svod_gradients(library: Svod, case: Case) -> list[Array]:
    """Those of the complex inputs."""
    inputs = complex_inputs(library, case)
    asked = [x.requires_grad_() for x in inputs if x.is_complex()]
    with suppress(GradientError):  # a result that depends on no input has gradients of zero
        weighted(library, case, inputs).backward()
    return [np.zeros(x.shape, np.complex128) if x.grad is None else x.grad.numpy() for x in asked]


def recorded() -> dict[str, dict[str, Any]]:
    """What torch said, by the keys of cases."""
    with np.load(FILE) as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()

    def array(_: str, kind: str, shape: list[int], start: int, size: int) -> Array:
        return np.frombuffer(data[start : start + size], kind).reshape(shape)

    return {
        key: {
            part: [array(*facts) for facts in found] if isinstance(found, list) else found
            for part, found in entry.items()
        }
        for key, entry in index.items()
    }


def main() -> int:
    """Compute and write everything."""
    library = Torch()
    library.module.set_num_threads(1)
    index: dict[str, Any] = {}
    writer = Writer()

    def put(array: Array) -> list[Any]:
        return writer.put(array.dtype.name, array)

    for place, case in COMPLEX_CASES:
        entry: dict[str, Any] = {}
        try:
            entry["values"] = [put(v) for v in values(library, case) if v.dtype.kind in "fciub"]
            grads = torch_gradients(library, case) if case.grad else None
            entry["gradients"] = None if grads is None else [put(g) for g in grads]
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
            entry.setdefault("refused", str(error).splitlines()[0][:80])
        index[key_of(place, case)] = entry
    text = np.frombuffer(json.dumps(index, sort_keys=True).encode(), np.uint8)
    np.savez_compressed(FILE, index=text, data=np.frombuffer(bytes(writer.data), np.uint8))
    refused = sum("values" not in e for e in index.values())
    print(f"{len(index)} cases, torch refuses {refused}; {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
