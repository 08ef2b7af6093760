from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svod.base.knobs import knobs
from svod.base.store import BlobStore
from svod.tools import cli


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache root with two caches: three entries and one."""
    folder = tmp_path / "root"
    monkeypatch.setattr(knobs, "cache_dir", str(folder))
    objects = BlobStore(folder / "objects", 1 << 20)
    for number in range(3):
        objects.put(f"key{number}", bytes([number]) * 1000)
        age = time.time() - 86400 * (3 - number)
        os.utime(folder / "objects" / f"key{number}.blob", (age, age))
    BlobStore(folder / "machine", 1 << 20).put("roofline", b"{}")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    assert cli.main(["cache", *arguments, "--json"]) == status
    shown = capsys.readouterr()
    return json.loads(shown.out) if shown.out else shown.err


def keys(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*/*.blob"))


def test_list_shows_caches_with_entries_and_sizes(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys)
    assert found["root"] == str(root)
    machine, objects = found["caches"]
    assert (machine["name"], len(machine["entries"]), machine["limit"]) == ("machine", 1, None)
    assert [entry["key"] for entry in objects["entries"]] == ["key0", "key1", "key2"]
    assert objects["bytes"] == sum(entry["bytes"] for entry in objects["entries"]) > 3000
    assert cli.main(["cache", "list"]) == 0
    text = capsys.readouterr().out
    assert "objects" in text and "3.1 KiB" in text


def test_an_empty_root_is_listed_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(knobs, "cache_dir", str(tmp_path / "nothing"))
    assert run(capsys)["caches"] == []
    assert run(capsys, "clear") == {"removed": 0, "bytes": 0}


def test_prune_removes_what_is_old(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "prune", "--older", "36h")["removed"] == 2
    assert keys(root) == ["key2", "roofline"]


def test_prune_keeps_the_newest_up_to_a_size(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "prune", "--bytes", "2K")["removed"] == 2
    assert keys(root) == ["key2", "roofline"]
    assert run(capsys, "prune", "--bytes", "1G")["removed"] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("prune",), "needs --bytes or --older"),
        (("prune", "--older", "soon"), "'soon' is no age"),
        (("prune", "--bytes", "much"), "is not valid"),
        (("export",), "needs the name of a file"),
        (("clear", "file"), "takes no file"),
        (("import", "missing.zip"), "cannot read missing.zip"),
    ],
)
def test_wrong_usage_is_explained(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in run(capsys, *arguments, status=1)
    assert len(keys(root)) == 4


def test_clear_removes_everything(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "clear")["removed"] == 4
    assert keys(root) == []


def test_an_export_can_be_imported(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "kept.zip"
    assert run(capsys, "export", str(archive))["entries"] == 4
    run(capsys, "clear")
    assert run(capsys, "import", str(archive))["stored"] == 4
    assert keys(root) == ["key0", "key1", "key2", "roofline"]
    assert BlobStore(root / "objects", 1 << 20).get("key1") == b"\1" * 1000


def rewritten(archive: Path, edit: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """The archive with its list and its entries changed."""
    with zipfile.ZipFile(archive) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    content = json.loads(parts.pop("manifest.json"))
    edit(content, parts)
    with zipfile.ZipFile(archive, "w") as new:
        for name, data in parts.items():
            new.writestr(name, data)
        new.writestr("manifest.json", json.dumps(content))


def outside(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    content["entries"][0]["cache"] = "../elsewhere"


def odd_key(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    content["entries"][0]["key"] = "../../key"


def changed(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    parts["objects/key0"] = b"\7" * 1000


def missing(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    del parts["objects/key0"]


def newer(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    content["format"] = 2


def foreign(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    content["kind"] = "recipes"


@pytest.mark.parametrize("edit", [outside, odd_key, changed, missing, newer, foreign])
def test_an_import_is_refused_as_a_whole(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: Any
) -> None:
    archive = tmp_path / "kept.zip"
    run(capsys, "export", str(archive))
    run(capsys, "clear")
    rewritten(archive, edit)
    assert "kept.zip cannot be imported" in run(capsys, "import", str(archive), status=1)
    assert keys(root) == [] and keys(tmp_path) == []


def test_damaged_archives_are_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "kept.zip"
    run(capsys, "export", str(archive))
    run(capsys, "clear")
    whole = archive.read_bytes()
    for length in range(0, len(whole), 97):
        archive.write_bytes(whole[:length])
        assert "cannot be imported" in run(capsys, "import", str(archive), status=1)
    assert keys(root) == []
