from __future__ import annotations

import io

from svod.base.progress import step, watch


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
