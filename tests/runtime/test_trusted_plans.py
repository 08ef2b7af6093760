"""Machine code of others is not run unasked; portable plans hold graphs, which are checked."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod.base.errors import PlanFormatError, UnsupportedError, UntrustedPlanError
from svod.base.hashing import checksum
from svod.base.knobs import knobs
from svod.base.paths import cache_folder
from svod.base.store import BlobStore
from svod.tensor.recording.realize import prepare

ROOT = Path(__file__).parents[2]


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def network() -> svod.ExecutionPlan:
    """Products, a softmax, a sort and rows by index: x of 6 by 8 to y."""
    x, w = svod.Tensor(normal(6, 8)), svod.Tensor(normal(8, 5, seed=1))
    rows = svod.Tensor(np.array([3, 0, 0, 5]))
    y = (x @ w).softmax(-1).sort(1)[0][rows]
    return prepare([y], inputs={"x": x}, outputs=["y"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    network().save(tmp_path / "plan.svod")
    return tmp_path / "plan.svod"


@pytest.fixture
def portable(tmp_path: Path) -> Path:
    network().save(tmp_path / "plan.svod", portable=True)
    return tmp_path / "plan.svod"


def rewritten(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """The file with another manifest and a checksum that fits it."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    manifest = json.loads(parts["manifest.json"])
    edit(manifest)
    parts["manifest.json"] = json.dumps(manifest).encode()
    parts["manifest.blake2b"] = checksum(parts["manifest.json"]).hex().encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


LOAD = "import sys, svod; print(svod.load_plan(sys.argv[1])().shape)"


def load_elsewhere(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOAD, str(path)],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_plan_that_this_user_saved_loads_in_another_process(saved: Path, tmp_path: Path) -> None:
    assert load_elsewhere(saved).stdout == "(4, 5)\n"


def test_machine_code_of_somebody_else_is_refused_unless_trusted(
    saved: Path, tmp_path: Path
) -> None:
    x = normal(6, 8, seed=4)
    expected = network()(x=x)
    done = load_elsewhere(saved, SVOD_CACHE_DIR=str(tmp_path / "another user"))
    assert done.returncode == 1
    assert "UntrustedPlanError: plan.svod holds machine code that you have not saved" in done.stderr
    with knobs.scope(cache_dir=tmp_path / "another user"):
        with pytest.raises(UntrustedPlanError, match=r"trusted=True\) runs it.*portable=True"):
            svod.load_plan(saved)
        assert (svod.load_plan(saved, trusted=True)(x=x) == expected).all()


def test_a_plan_that_was_changed_or_never_signed_is_refused(saved: Path) -> None:
    rewritten(saved, lambda manifest: manifest.update(outputs=[0]))
    with pytest.raises(UntrustedPlanError, match="or that was changed since"):
        svod.load_plan(saved)

    def unsign(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            parts = {info.filename: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in parts.items():
                if name != "manifest.signature":
                    archive.writestr(name, data)

    unsign(saved)
    with pytest.raises(UntrustedPlanError, match="nobody has signed"):
        svod.load_plan(saved)


def test_code_that_was_exchanged_does_not_fit_the_signature(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    parts["code/0.o"] = parts["code/0.o"][:-1] + bytes([parts["code/0.o"][-1] ^ 1])
    with zipfile.ZipFile(saved, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(PlanFormatError, match=r"code/0.o is damaged"):
        svod.load_plan(saved)


def test_calling_a_file_portable_does_not_make_its_code_run(saved: Path) -> None:
    rewritten(saved, lambda manifest: manifest.update(portable=True))
    with pytest.raises(PlanFormatError, match="body is missing"):
        svod.load_plan(saved)


def test_the_key_is_private_and_no_cache_entry(saved: Path) -> None:
    from svod.tools.cache import stores

    folder = cache_folder(".keys")
    assert BlobStore(folder, 1 << 16).get("plans") is not None
    assert (folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o22) == (0o700, 0)
    assert all(name != ".keys" for name, _ in stores())


def test_without_a_folder_for_the_key_a_process_loads_what_it_saved(tmp_path: Path) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    with knobs.scope(cache_dir=blocking / "cache"):
        network().save(tmp_path / "plan.svod")
        assert svod.load_plan(tmp_path / "plan.svod")().shape == (4, 5)
    assert "UntrustedPlanError" in load_elsewhere(tmp_path / "plan.svod").stderr


# -- portable plans ------------------------------------------------------------------------------


def test_a_portable_plan_holds_no_code_needs_no_trust_and_gives_the_same(
    portable: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(portable) as archive:
        names = set(archive.namelist())
    assert names == {"manifest.json", "manifest.blake2b", "data.bin"}
    x = normal(6, 8, seed=3)
    expected = network()(x=x)
    with knobs.scope(cache_dir=tmp_path / "another user"):
        loaded = svod.load_plan(portable)
        assert (loaded(x=x) == expected).all()
        loaded.save(tmp_path / "again.svod", portable=True)
        assert (svod.load_plan(tmp_path / "again.svod")(x=x) == expected).all()
    assert load_elsewhere(portable, SVOD_CACHE_DIR=str(tmp_path / "b")).stdout == "(4, 5)\n"


def test_frozen_weights_and_inputs_left_out_are_portable_too(tmp_path: Path) -> None:
    x, w = svod.Tensor(normal(16, 8)), svod.Tensor(normal(96, 8, seed=1))
    plan = prepare([x.linear(w).relu()], inputs={"x": x}, outputs=["y"], freeze=True)
    plan.save(tmp_path / "plan.svod", portable=True, without=["x"])
    loaded = svod.load_plan(tmp_path / "plan.svod")
    other = normal(16, 8, seed=5)
    assert (loaded(x=other) == plan(x=other)).all()


def test_convolutions_scatters_and_attention_are_portable(tmp_path: Path) -> None:
    image, sequence = svod.Tensor(normal(1, 3, 9, 9)), svod.Tensor(normal(2, 7, 8))
    rows = svod.Tensor(np.array([4, 1, 1, 3, 0, 4, 2]))
    results = [
        svod.nn.functional.conv2d(image, svod.Tensor(normal(4, 3, 3, 3)), padding=1).cumsum(-1),
        svod.zeros(5, 8).index_add(0, rows, sequence[0]),
        svod.nn.functional.scaled_dot_product_attention(sequence, sequence, sequence),
    ]
    plan = prepare(results, inputs={"image": image, "sequence": sequence})
    plan.save(tmp_path / "plan.svod", portable=True)
    loaded = svod.load_plan(tmp_path / "plan.svod")
    for mine, expected in zip(loaded(), plan(), strict=True):
        assert (mine == expected).all()


def test_what_has_no_portable_form_says_so(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"its graph was not kept.*without portable=True"):
        svod.load_plan(saved).save(tmp_path / "again.svod", portable=True)
    matrix = svod.Tensor(np.eye(3, dtype=np.float32))
    with pytest.raises(UnsupportedError, match=r"cannot call the function linalg"):
        svod.linalg.inv(matrix).prepare().save(tmp_path / "again.svod", portable=True)
    assert not (tmp_path / "again.svod").exists()


def body(manifest: dict[str, Any], number: int = 0) -> str:
    return str(manifest["kernels"][number]["body"])


def check_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(op for op in manifest["ops"] if op["kind"] == "custom")
    return found


def replaced(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        assert re.search(old, body(manifest)), body(manifest)
        manifest["kernels"][0]["body"] = re.sub(old, new, body(manifest), count=1)

    return edit


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (replaced(r"slot=1, shape=\(48,\)", "slot=1, shape=(4800000,)"), r"kernels\[0\].body"),
        (replaced(r"PARAM f32\[48\]", "PARAM f64[48]"), "expected the graph of a kernel"),
        (replaced(r"SINK void", "STORE void"), "expected the graph of a kernel"),
        (replaced(r"= EXPAND", "= __import__"), "expected the graph of a kernel"),
        (lambda m: m["kernels"][0].update(body=""), "expected the graph of a kernel"),
        (lambda m: m["kernels"][0].update(body="%0 = CONST f32 : 1.0"), "expected a SINK"),
        (lambda m: m["kernels"][0].update(body="%0 = SINK void"), "expected a SINK"),
        (
            lambda m: m["kernels"][0].update(body="%0 = DEVICE void : 'CPU'\n%1 = SINK void %0"),
            "DEVICE does not belong into it",
        ),
        (
            lambda m: m["kernels"][0].update(
                body=body(m).replace("48", str(48 << 30)).replace("6,", f"{6 << 30},")
            ),
            r"kernels\[0\].body|buffers",
        ),
        (lambda m: m["ops"][0].update(slots=[0, 1]), r"ops\[0\].slots"),
        (lambda m: m["ops"][0].update(slots=[0, 1, 1]), r"ops\[0\].slots"),
        (lambda m: m["ops"][0].update(slots=[0, 2, 1]), r"ops\[0\].buffers: expected float32"),
        (lambda m: m["ops"][0].update(kind="format disk"), "expected kernel or copy or view"),
        (lambda m: m["ops"][0].update(values=[1]), r"ops\[0\].values"),
    ],
)
def test_a_hostile_graph_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    x, w = svod.Tensor(normal(6, 8)), svod.Tensor(normal(8, 5, seed=1))
    (x @ w).prepare().save(tmp_path / "plan.svod", portable=True)
    rewritten(tmp_path / "plan.svod", edit)
    with pytest.raises(PlanFormatError, match=complaint):
        svod.load_plan(tmp_path / "plan.svod")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"function": "linalg.inv"}, "expected check_indices"),
        ({"buffers": [0] * 4}, "expected a word"),
        ({"attributes": ["x", -1, True, 64, True]}, "attributes"),
        ({"attributes": [{"bytes": "00"}] * 5}, "attributes"),
        ({"values": {"n": 1}}, "without variables"),
    ],
)
def test_a_portable_plan_calls_no_function_but_the_check_of_indices(
    portable: Path, change: dict[str, Any], complaint: str
) -> None:
    rewritten(portable, lambda manifest: check_of(manifest).update(change))
    with pytest.raises(PlanFormatError, match=complaint):
        svod.load_plan(portable)


def test_indices_are_checked_in_a_portable_plan_too(tmp_path: Path) -> None:
    rows = svod.Tensor(np.array([3, 0]))
    plan = prepare([svod.Tensor(normal(6, 8))[rows]], inputs={"rows": rows}, outputs=["y"])
    plan.save(tmp_path / "plan.svod", portable=True)
    loaded = svod.load_plan(tmp_path / "plan.svod")
    with pytest.raises(IndexError, match="6 is out of range"):
        loaded(rows=np.array([6, 0]))


FUZZ = """
import json, re, sys, time
import random
from pathlib import Path
sys.path.insert(0, sys.argv[4])
import svod
from svod.base.errors import SvodError
from tests.runtime.test_trusted_plans import mutated, rewritten
path, copy = Path(sys.argv[1]), Path(sys.argv[1] + ".hostile")
chance = random.Random(int(sys.argv[2]))
refused = ran = 0
for _ in range(int(sys.argv[3])):
    copy.write_bytes(path.read_bytes())
    rewritten(copy, lambda manifest: mutated(manifest, chance))
    start = time.monotonic()
    try:
        plan = svod.load_plan(copy)
        plan.execute()
        ran += 1
    except SvodError:
        refused += 1
    assert time.monotonic() - start < 30
print(refused, ran)
"""


def mutated(manifest: dict[str, Any], chance: random.Random) -> None:
    """Change something in a manifest: mostly a number, an op or a source of a kernel's graph."""
    kind = chance.randrange(4)
    if kind == 3:  # any number of the manifest
        places: list[tuple[Any, Any]] = []

        def collect(value: Any) -> None:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                if type(inner) is int:
                    places.append((value, key))
                elif isinstance(inner, dict | list):
                    collect(inner)

        collect(manifest)
        holder, key = chance.choice(places)
        holder[key] = chance.choice((0, 1, -1, 2, 3, 7, 64, 1 << 20, 1 << 40, 1 << 62, 1 << 63))
        return
    kernel = chance.choice(manifest["kernels"])
    lines = kernel["body"].splitlines()
    at = chance.randrange(len(lines))
    if kind == 0:
        numbers = list(re.finditer(r"(?<![%\w])\d+", lines[at]))
        if numbers:
            found = chance.choice(numbers)
            new = str(chance.choice((0, 1, 2, 5, 8, 48, 1 << 31, 1 << 40, 1 << 63)))
            lines[at] = lines[at][: found.start()] + new + lines[at][found.end() :]
    elif kind == 1:
        names = re.findall(r"= ([A-Z_]+) ", kernel["body"])
        lines[at] = re.sub(r"= [A-Z_]+ ", f"= {chance.choice(names)} ", lines[at])
    else:
        other = f" %{chance.randrange(len(lines))}"
        lines[at] = re.sub(r" %\d+(?! =)", other, lines[at], count=chance.randrange(1, 3))
    kernel["body"] = "\n".join(lines)


def test_changed_portable_plans_are_refused_or_run(portable: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(portable), "1", "300", str(ROOT)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    refused, ran = map(int, done.stdout.split())
    assert refused + ran == 300 and refused > 100 and ran > 5
