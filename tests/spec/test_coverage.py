"""Every row of the checklist has a test that names it, or a reason in pending.txt."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.spec.checklist import PAGE, marked_rows, naming_tests, page, pending, rows

ROOT = Path(__file__).parents[2]
ALL = [
    *(f"S{n}" for n in range(1, 274)),
    *(f"T{n}" for n in range(1, 22)),
    *(f"Q{n}" for n in range(1, 19)),
]


def test_the_list_of_rows_is_complete():
    assert list(rows()) == ALL


def test_every_row_has_a_test_or_a_reason():
    named, waiting = naming_tests(), pending()
    missing = [row for row in rows() if row not in named and row not in waiting]
    assert missing == [], f"rows without a test: {', '.join(missing)}"


def test_no_row_is_pending_that_has_a_test():
    named, known = naming_tests(), rows()
    stale = [row for row in pending() if row in named or row not in known]
    assert stale == [], f"take these out of pending.txt: {', '.join(stale)}"


def test_every_pending_row_has_a_reason():
    assert all(len(reason) > 10 for reason in pending().values())


def test_no_test_names_a_row_that_does_not_exist():
    known = rows()
    unknown = {row: found for row, found in naming_tests().items() if row not in known}
    assert unknown == {}


def test_rows_live_in_files_that_exist():
    places = {row.where for row in rows().values()} - {"-"}
    assert [p for p in sorted(places) if not (ROOT / "svod" / p).is_file()] == []
    waiting = pending()
    assert [r.id for r in rows().values() if r.where == "-" and r.id not in waiting] == []


def test_row_numbers_are_read_from_markers_alone():
    text = '@pytest.mark.slow("S9")\n@pytest.mark.row("S45", "T12")\ndef test_S3(): "S4"'
    (test,) = ast.parse(text).body
    assert isinstance(test, ast.FunctionDef)
    assert marked_rows(test) == ["S45", "T12"]


def test_rows_are_kept_whole():
    assert [row.id for row in rows().values() if "…" in row.what or len(row.what) < 4] == []


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.spec.checklist"
