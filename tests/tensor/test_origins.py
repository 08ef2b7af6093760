"""Every kernel can be traced to a line of user code, also when its schedule was cached."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from svod import Tensor
from svod.base.knobs import knobs

HERE = Path(__file__).name


def lines(x: Tensor) -> list[tuple[str, int]]:
    found = [k.origin for k in x.prepare().prepared_kernels()]
    return [(Path(o[0]).name, o[1]) for o in found if o is not None]


def line_of(text: str) -> int:
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        if text in line:
            return number
    raise AssertionError(text)


def test_a_kernel_knows_its_line() -> None:
    x = Tensor(np.ones((7, 11), np.float32))
    y = (x * 3).exp()  # line A
    assert lines(y) == [(HERE, line_of("# line " + "A"))]


def test_a_cached_schedule_still_gives_the_line_of_this_call() -> None:
    x = Tensor(np.ones((7, 13), np.float32))
    first = (x * 3).exp()  # line B
    second = (x * 3 + 0).exp() if False else (Tensor(np.ones((7, 13), np.float32)) * 3).exp()
    assert lines(first) == [(HERE, line_of("# line " + "B"))]
    assert lines(second) == [(HERE, line_of("second = (x"))]


def test_several_kernels_have_lines_of_their_own() -> None:
    x = Tensor(np.ones((16, 16), np.float32))
    a = x @ x  # line C
    b = (a @ x).relu()  # line D
    found = lines(b)
    assert found[-1] == (HERE, line_of("# line " + "D"))
    assert found[0] == (HERE, line_of("# line " + "C"))


def test_rewritten_graphs_keep_the_lines_of_what_they_were() -> None:
    x = Tensor(np.ones((16, 16), np.float32))
    a = (x + x).cholesky_inverse().contiguous()  # line E
    b = (a.detach() @ x + 0).sort(0)[0]  # line F
    found = [p.origin for p in b.prepare().prepared_ops() if hasattr(p, "origin")]
    assert all(o is not None for o in found)
    assert {o[1] for o in found} == {line_of("# line " + "E"), line_of("# line " + "F")}


def test_lines_stay_when_what_they_read_is_computed() -> None:
    x = Tensor(np.ones((16, 17), np.float32))
    a = x @ x.T  # line G
    b = a.softmax(1)  # line H
    a.realize()
    assert lines(b) == [(HERE, line_of("# line " + "H"))]


def test_origins_can_be_switched_off() -> None:
    with knobs.scope(ORIGINS=0):
        x = Tensor(np.ones((5, 3), np.float32)) + 1
        assert x.uop.origin is None
