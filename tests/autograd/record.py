"""Write what torch gives for every case: ``python -m tests.autograd.record``."""

from __future__ import annotations

import numpy as np

from tests.autograd.cases import CASES
from tests.autograd.libraries import FILE, plain, torch

if __name__ == "__main__":
    found = {}
    for name, program in CASES.items():
        for number, value in enumerate(program(torch())):
            found[f"{name} {number:02}"] = plain(value)
    np.savez_compressed(FILE, **found)
    print(f"{len(CASES)} cases, {len(found)} values in {FILE}")
