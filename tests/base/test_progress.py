from __future__ import annotations

import io
from itertools import pairwise

from svod.base.progress import Progress, progress, step, watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_are_shown_on_a_terminal() -> None:
    out = Terminal()
    with watch("compiling", out):
        step("code of matmul", 1, 1)
    step("nobody watches", 1, 1)
    assert "\rcompiling: code of matmul 1 of 1, " in out.getvalue()
    assert out.getvalue().splitlines()[-1].rpartition("\r")[2].startswith("compiling, ")
    assert "nobody" not in out.getvalue()


def test_nothing_is_written_to_a_pipe() -> None:
    out = io.StringIO()
    with watch("compiling", out):
        step("code of matmul", 1, 1)
    assert out.getvalue() == ""


def test_a_function_is_told_every_step_and_how_long_it_may_take() -> None:
    seen: list[Progress] = []
    with progress(seen.append):
        for number in range(1, 4):
            step(f"part {number}", number, 3)
        step("other work", 0, 0)
    step("nobody follows", 1, 1)
    assert [(s.what, s.done, s.total) for s in seen[:2]] == [("part 1", 1, 3), ("part 2", 2, 3)]
    assert seen[0].left is None and seen[1].left is not None and seen[2].left == 0
    assert seen[3].left is None
    assert len(seen) == 4
    assert all(before.seconds <= after.seconds for before, after in pairwise(seen))


def test_blocks_that_follow_may_lie_in_each_other() -> None:
    seen: list[str] = []
    out = Terminal()
    with progress(lambda state: seen.append(state.what)), watch("loading", out):
        step("weights", 2, 2)
    assert seen == ["weights"]
    assert "loading: weights 2 of 2" in out.getvalue()


def test_a_line_without_steps_is_no_line() -> None:
    out = Terminal()
    with progress(stream=out):
        pass
    assert out.getvalue() == ""
    with progress(stream=out):
        step("code of matmul", 1, 1)
    assert out.getvalue().endswith("\r\x1b[K")  # and nothing of it stays
