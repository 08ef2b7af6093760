"""The glossary names files that exist, and the rename list is complete and consistent."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS, RENAMES = PAGE.split("## Renames")
FILES, FUNCTIONS = RENAMES.split("### Functions")
MOVED = re.findall(r"^\| `(svod/\S+\.py)` \| `(svod/\S+\.py)` \|", FILES, re.MULTILINE)
CALLED = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(svod/\S+\.py)` \|", FUNCTIONS, re.MULTILINE)


def new_path(path: str) -> Path:
    """Where a file is: under its old name, or under the new one."""
    return next(p for p in (ROOT / path, ROOT / dict(MOVED).get(path, path)) if p.exists())


def test_words_are_in_order_and_lead_to_files() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| (.*`svod/.*) \|$", WORDS, re.MULTILINE)
    assert len(rows) > 60
    names = [name.lower() for name, _ in rows]
    assert names == sorted(names)
    for _, where in rows:
        for path in re.findall(r"`(svod/\S+\.py)`", where):
            assert new_path(path)


@pytest.mark.parametrize("word", (
    "im2col", "epilogue", "swizzle", "packing", "flash attention", "histogram",
    "segmented reduction", "disjoint stores",
))  # fmt: skip
def test_the_words_of_the_field_are_there(word: str) -> None:
    assert re.search(rf"^\| {word} \|", WORDS, re.MULTILINE)


@pytest.mark.parametrize(("old", "new"), MOVED)
def test_a_file_has_its_old_or_its_new_name(old: str, new: str) -> None:
    assert (ROOT / old).exists() != (ROOT / new).exists()
    assert Path(old).name != Path(new).name or Path(old).parent != Path(new).parent


@pytest.mark.parametrize(("old", "new", "path"), CALLED)
def test_a_function_has_its_old_or_its_new_name(old: str, new: str, path: str) -> None:
    text = new_path(path).read_text(encoding="utf-8")
    names = set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE))
    assert (old in names) != (new in names)


def test_no_basename_is_left_for_two_ideas() -> None:
    """After the renames a basename that occurs twice is one of those the page explains."""
    moved = dict(MOVED)
    kept = re.search(r"^The same basename stays .*?(?=\n\n)", RENAMES, re.MULTILINE | re.DOTALL)
    assert kept is not None
    explained = set(re.findall(r"`(\w+)`", kept[0]))
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "svod").rglob("*.py")]
    names = Counter([Path(moved.get(f, f)).stem for f in files if not f.endswith("__init__.py")])
    assert {name for name, count in names.items() if count > 1} <= explained
