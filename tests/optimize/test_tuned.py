"""The tuned store: many processes at once, broken files, export and import, and its use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from svod import Tensor
from svod.base.errors import CacheError
from svod.base.knobs import knobs
from svod.device.cpu.host import host_machine
from svod.optimize.opts import Opt
from svod.optimize.tuned import Entry, TunedStore, entry_key, opts_from_json, tuned_store
from svod.runtime.caches import clear_kernel_cache
from svod.runtime.chosen import tuned_loops
from svod.runtime.tuning import tuning_identity
from svod.tools.cli import main
from svod.tools.tune import target_kernels

ENTRY = Entry((Opt("LANE", 1, 16), Opt("THREAD", 0, 2)), 1.5e-5, 4, False, "matmul")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.scope(cache_dir=str(tmp_path)):
        clear_kernel_cache()
        yield tmp_path
    clear_kernel_cache()


def test_an_entry_comes_back_as_it_was() -> None:
    store = tuned_store()
    assert store.get("kernel", "cpu") is None
    assert store.put("kernel", "cpu", ENTRY)
    assert store.get("kernel", "cpu") == ENTRY
    assert store.get("kernel", "another cpu") is None and store.get("other", "cpu") is None


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "folder"])
def test_a_broken_file_is_a_miss(damage: str, folder: Path) -> None:
    store = tuned_store()
    store.put("kernel", "cpu", ENTRY)
    (path,) = (folder / "tuned").glob("*.blob")
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        broken = {"empty": b"", "cut": data[:-9], "flipped": flipped, "foreign": b"x" * 99}
        path.write_bytes(broken[damage])
    assert store.get("kernel", "cpu") is None
    assert store.entries() == {}


MALFORMED = [
    "no list", [["LANE", 1]], [["LANE", 1, -2]], [["LANE", True, 2]], [[3, 1, 2]],
    [["LANE", 1.0, 2]], [["LANE", 1, 1 << 60]], [["LANE", 1, 2]] * 100,
]  # fmt: skip


@pytest.mark.parametrize("value", MALFORMED, ids=lambda v: str(v)[:30])
def test_malformed_opts_are_none(value: object) -> None:
    assert opts_from_json(value) is None


WRITER = """
import sys
from svod.optimize.opts import Opt
from svod.optimize.tuned import Entry, tuned_store
store = tuned_store()
wrong = 0
for turn in range(150):
    number = turn % 10
    store.put(f"kernel {number}", "cpu", Entry((Opt("LANE", number, turn),), float(turn)))
    found = store.get(f"kernel {(turn * 7) % 10}", "cpu")
    wrong += found is not None and found.opts[0].axis != (turn * 7) % 10
    wrong += found is not None and found.opts[0].amount != found.seconds
print(wrong)
"""


def test_several_processes_read_and_write_at_once(folder: Path) -> None:
    environment = {**os.environ, "SVOD_CACHE_DIR": str(folder)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER], stdout=subprocess.PIPE, env=environment, text=True
        )
        for _ in range(4)
    ]
    assert [p.communicate()[0].strip() for p in started] == ["0"] * 4
    assert len(tuned_store().entries()) == 10
    assert not list((folder / "tuned").glob(".tmp-*"))


def test_the_store_is_bounded(folder: Path) -> None:
    store = TunedStore(folder / "small", max_bytes=4000)
    for number in range(100):
        store.put(f"kernel {number}", "cpu", ENTRY)
    assert 0 < len(store.entries()) < 30
    assert store.get("kernel 99", "cpu") == ENTRY


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "tuned").write_text("in the way")
    assert not tuned_store().put("kernel", "cpu", ENTRY)
    assert tuned_store().get("kernel", "cpu") is None


# -- export and import ----------------------------------------------------------------------------


def test_entries_move_by_export_and_import(folder: Path) -> None:
    tuned_store().put("kernel", "cpu", ENTRY)
    assert tuned_store().export(folder / "all.json") == 1
    with knobs.scope(cache_dir=str(folder / "elsewhere")):
        assert tuned_store().import_from(folder / "all.json") == 1
        assert tuned_store().get("kernel", "cpu") == ENTRY


def test_of_two_entries_the_faster_stays(folder: Path) -> None:
    tuned_store().put("kernel", "cpu", ENTRY)
    tuned_store().export(folder / "all.json")
    faster = Entry((), 1e-6)
    tuned_store().put("kernel", "cpu", faster)
    assert tuned_store().import_from(folder / "all.json") == 0
    assert tuned_store().get("kernel", "cpu") == faster


BROKEN = {
    "no JSON": "{",
    "another format": '{"format": "x"}',
    "a list": "[]",
    "a malformed entry": json.dumps({"format": "svod tuned 1", "entries": {"ab": {"opts": 3}}}),
    "a path as a key": json.dumps(
        {"format": "svod tuned 1", "entries": {"../x": {"opts": [], "seconds": 1}}}
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_export_is_refused(name: str, folder: Path) -> None:
    (folder / "all.json").write_text(BROKEN[name])
    with pytest.raises(CacheError, match=r"all\.json"):
        tuned_store().import_from(folder / "all.json")
    assert tuned_store().entries() == {}


# -- use ------------------------------------------------------------------------------------------


def prepared_source(a: np.ndarray) -> str:
    clear_kernel_cache()
    plan = (Tensor(a) @ Tensor(a)).prepare()
    return next(iter(plan.kernels())).source


def keep(opts: tuple[Opt, ...]) -> str:
    """Keep opts for the product of two 32x32 matrices; the key of the kernel."""
    (body,) = target_kernels("matmul:32x32x32")
    tuned_store().put(body.content_hash, tuning_identity(host_machine()), Entry(opts, 1e-6, 1))
    return body.content_hash


def test_an_entry_is_used_without_being_asked_for() -> None:
    a = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) / 64
    before = prepared_source(a)
    keep((Opt("UPCAST", 0, 2), Opt("LANE", 1, 8)))
    after = prepared_source(a)
    assert "<8 x float>" in after and after != before
    np.testing.assert_allclose((Tensor(a) @ Tensor(a)).numpy(), a @ a, rtol=1e-5)
    with knobs.scope(tuned=False):
        assert prepared_source(a) == before


def test_an_entry_that_does_not_fit_is_no_entry() -> None:
    a = np.ones((32, 32), np.float32)
    before = prepared_source(a)
    keep((Opt("UNROLL", 0, 2),))
    assert prepared_source(a) == before


def test_an_entry_of_a_narrower_search_is_not_enough_for_a_wider_one() -> None:
    keep((Opt("LANE", 1, 8),))
    (body,) = target_kernels("matmul:32x32x32")
    assert tuned_loops(body, host_machine(), 1) is not None
    assert tuned_loops(body, host_machine(), 2) is None


def test_the_key_holds_the_kernel_the_machine_and_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from svod.optimize import tuned

    first = entry_key("kernel", "cpu")
    monkeypatch.setattr(tuned, "ACTION_SPACE", 999)
    assert len({first, entry_key("kernel", "cpu"), entry_key("kernel", "x")}) == 3


# -- svod tune ------------------------------------------------------------------------------------


def test_tune_keeps_what_it_found_and_exports_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "sum:8x64"
    assert main(["tune", target, "--budget", "8", "--width", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"]
    assert row["target"] == target and row["state"] in ("faster", "heuristics")
    assert row["seconds"] <= row["heuristic_seconds"] and row["tried"] > 3
    path = folder / "all.json"
    assert main(["tune", target, "--budget", "8", "--width", "1", "--export", str(path)]) == 0
    text = capsys.readouterr().out
    assert "known" in text and "1 entries written" in text
    with knobs.scope(cache_dir=str(folder / "elsewhere")):
        assert main(["tune", "--import", str(path)]) == 0
        assert len(tuned_store().entries()) == 1
    assert "1 entries taken" in capsys.readouterr().out


def test_tune_takes_a_function_of_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_model.py").write_text(
        "import numpy as np\nfrom svod import Tensor\n"
        "def outputs():\n"
        "    x = Tensor(np.ones((8, 16), np.float32))\n"
        "    return [x.sum(1), x * 2]\n"
        "def nothing():\n"
        "    return []\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    assert len(target_kernels("my_model:outputs")) == 2
    with pytest.raises(ValueError, match="nothing to tune"):
        target_kernels("my_model:nothing")


@pytest.mark.parametrize(
    "target, reason",
    [
        ("matmul", "is no target"),
        ("matmul:3x4", "use matmul:MxKxN"),
        ("matmul:3x0x4", "use matmul:MxKxN"),
        ("no_such_module:f", "neither one of matmul"),
    ],
)
def test_a_wrong_target_is_refused(
    target: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", target]) == 1
    assert reason in capsys.readouterr().err
