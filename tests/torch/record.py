"""Write what torch says about every case: ``python -m tests.torch.record``."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import numpy as np

from tests.torch.case import Array
from tests.torch.cases import BAD, CASES, places
from tests.torch.results import FILE, TorchResults, key_of


class Writer:
    """Arrays one after the other, and where each is; equal ones are kept once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.known: dict[bytes, int] = {}

    def put(self, name: str, array: Array) -> list[Any]:
        content = np.ascontiguousarray(array)
        raw = content.tobytes()
        start = self.known.setdefault(raw, len(self.data))
        if start == len(self.data):
            self.data += raw
        return [name, content.dtype.str, list(array.shape), start, len(raw)]


def signatures(functional: Any) -> dict[str, list[str]]:
    """The arguments of the functions of torch.nn.functional, in order."""
    found = {}
    for name in dir(functional):
        value = getattr(functional, name)
        if name.startswith("_") or not inspect.isfunction(value):
            continue
        names = list(inspect.signature(value).parameters)
        if names and names != ["args", "kwargs"]:
            found[name] = names
    return found


def main() -> int:
    """Compute and write everything."""
    torch = TorchResults()
    torch.library.module.set_num_threads(1)
    writer = Writer()
    wrong = 0
    index: dict[str, Any] = {}
    for place, case in zip(places(CASES), CASES, strict=True):
        try:
            for dtype in case.dtypes:
                found = torch.outputs(case, place, dtype)
                index[key_of(case, place, dtype)] = [writer.put(n, a) for n, a in found]
            if case.grad:
                grads = torch.gradients(case, place)
                kept = None if grads is None else [writer.put("float64", g) for g in grads]
                index[key_of(case, place, "gradient")] = kept
        except Exception as error:
            print(f"torch refuses {case.name} {place} {case.args} {case.options}: {error}")
            wrong += 1
    for place, case in zip(places(BAD), BAD, strict=True):
        found_error = torch.error(case, place)
        if found_error is None:
            print(f"torch takes {case.name} {place} {case.args} {case.options}")
            wrong += 1
        index[key_of(case, place, "error")] = found_error
    if wrong:
        print(f"{wrong} cases are not what the tables say; nothing was written")
        return 1
    names = {c.name for c in CASES} | {c.name for c in BAD}
    index["forms"] = {name: torch.library.forms(name) for name in sorted(names)}
    index["signatures"] = signatures(torch.library.functional)
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(FILE, index=text, data=np.frombuffer(bytes(writer.data), np.uint8))
    print(f"{len(index)} results, {FILE.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
