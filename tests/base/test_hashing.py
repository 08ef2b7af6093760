from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svod.base.hashing import checksum, digest

PARTS = st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=6), st.integers()), max_size=4)


def kinds(parts: list[bytes | str | int]) -> list[tuple[type, object]]:
    return [(type(part), part) for part in parts]


@given(PARTS, PARTS)
def test_digests_are_equal_exactly_for_equal_parts(
    left: list[bytes | str | int], right: list[bytes | str | int]
) -> None:
    assert (digest(*left) == digest(*right)) == (kinds(left) == kinds(right))


def test_boundaries_and_kinds_count() -> None:
    seen = [
        digest("ab", "c"),
        digest("a", "bc"),
        digest("abc"),
        digest(b"abc"),
        digest(1),
        digest("1"),
        digest(),
        digest(""),
        digest("", ""),
    ]
    assert len(set(seen)) == len(seen)


def test_the_digest_is_the_same_in_every_process() -> None:
    program = "from svod.base.hashing import digest; print(digest('kernel', b'\\x00', -7))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    assert runs == {digest("kernel", b"\x00", -7)}
    assert digest("kernel", b"\x00", -7) == GOLDEN


GOLDEN = "0272c3f87e595bbbaf5d403e3a59ab94ca926694"


def test_the_size_is_in_bytes() -> None:
    assert len(digest("x")) == 40
    assert len(digest("x", size=8)) == 16
    assert len(checksum(b"x")) == 32


def test_the_checksum_reads_its_parts_as_one_text() -> None:
    assert checksum(b"ab", b"c") == checksum(b"abc") != checksum(b"abd")


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="digest takes bytes, str or int, not float"):
        digest(1.5)  # type: ignore[arg-type]
