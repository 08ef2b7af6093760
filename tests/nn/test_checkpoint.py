"""svod.save and svod.load: what goes in comes back, and hostile files are refused."""

from __future__ import annotations

import io
import math
import os

import numpy as np
import pytest

import svod
from svod import nn
from svod.base.errors import DTypeError
from svod.nn.state import StateFileError, load_file, save_file


def _model() -> tuple[nn.Module, svod.optim.AdamW]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    return model, svod.optim.AdamW(model.parameters(), lr=1e-2)


def _step(model, optimizer, x) -> float:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_run_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(tmp_path):
    path = tmp_path / "run.svod"
    svod.manual_seed(0)
    x = svod.randn(5, 4).realize()
    model, optimizer = _model()
    schedule = svod.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        _step(model, optimizer, x)
        schedule.step()
    svod.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": svod.get_rng_state(),
        },
        path,
    )
    expected = [_step(model, optimizer, x) for _ in range(3)]

    svod.manual_seed(99)
    other, its_optimizer = _model()
    its_schedule = svod.optim.lr_scheduler.StepLR(its_optimizer, 2)
    saved = svod.load(path)
    other.load_state_dict(saved["model"])
    its_optimizer.load_state_dict(saved["optimizer"])
    its_schedule.load_state_dict(saved["schedule"])
    svod.set_rng_state(saved["random"])
    assert [_step(other, its_optimizer, x) for _ in range(3)] == expected


def test_containers_numbers_and_generators_come_back(tmp_path):
    path = tmp_path / "things.svod"
    tied = svod.arange(6).reshape(2, 3)
    generator = svod.Generator(5)
    generator.words(3)
    things = {
        "a": [tied, (tied, None, True, "text", 2.5, -7, math.inf, 3 + 4j)],
        3: {"x.y": svod.zeros(0, 2), "x": {"y": svod.Tensor([1.5], dtype="bfloat16")}},
        (1, "k"): np.arange(4, dtype=np.int16),
        "dtype": svod.float16,
        "generator": generator,
    }
    svod.save(things, path)
    found = svod.load(path)
    first, inner = found["a"]
    assert first.tolist() == tied.tolist() and inner[0] is first, "one tensor stays one"
    assert inner[1:] == (None, True, "text", 2.5, -7, math.inf, 3 + 4j)
    assert found[3]["x.y"].shape == (0, 2) and found[3]["x"]["y"].dtype is svod.bfloat16
    assert found[(1, "k")].dtype == np.int16 and found["dtype"] is svod.float16
    assert found["generator"].words(2).tolist() == generator.words(2).tolist()


def test_state_dicts_are_plain_safetensors_both_ways(tmp_path):
    path = tmp_path / "model.safetensors"
    model, _ = _model()
    svod.save(model.state_dict(), path)
    assert set(load_file(path)) == set(model.state_dict())
    save_file({"w": svod.ones(3)}, path)
    assert svod.load(path)["w"].tolist() == [1, 1, 1]
    svod.save(svod.ones(2, 2), path)
    assert svod.load(path).tolist() == [[1, 1], [1, 1]]


def test_what_cannot_be_saved_is_named_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "kept.svod"
    svod.save([1, 2], path)
    model, _ = _model()
    with pytest.raises(DTypeError, match=r"Sequential.*state_dict\(\)"):
        svod.save(model, path)
    with pytest.raises(DTypeError, match=r"a\.0 is a set"):
        svod.save({"a": [{1}]}, path)
    assert svod.load(path) == [1, 2]


@pytest.mark.parametrize(
    "tree",
    ["[1]", '{"code": "x"}', '{"tensor": "missing"}', '{"dict": 3}', '{"list": [', "{}",
     '{"list": [{"list": ' * 5000],
)  # fmt: skip
def test_malformed_containers_are_refused(tmp_path, tree):
    path = tmp_path / "bad.svod"
    save_file({"w": svod.ones(3)}, path, {"svod.tree": tree})
    with pytest.raises(StateFileError, match="malformed"):
        svod.load(path)


def test_open_files_are_written_and_read():
    x = svod.arange(6).reshape(2, 3)
    file = io.BytesIO()
    svod.save({"x": x, "epoch": 3}, file)
    file.seek(0)
    found = svod.load(file)
    assert found["epoch"] == 3 and found["x"].tolist() == x.tolist()
    with pytest.raises(DTypeError, match="binary mode"):
        svod.load(io.StringIO("text"))
    with pytest.raises(DTypeError, match="a path or an open file"):
        svod.save({"x": x}, 3)


def test_keywords_of_torch_are_taken(tmp_path):
    path = tmp_path / "x.pt"
    svod.save({"x": svod.ones(2)}, path)
    found = svod.load(path, map_location="cpu", weights_only=True, mmap=False)
    assert found["x"].tolist() == [1, 1] and found["x"].device == "CPU"
    assert svod.load(path, weights_only=False, map_location="REF")["x"].device == "REF"
    with pytest.raises(TypeError, match="map_location is the name of a device"):
        svod.load(path, map_location={"cuda": "cpu"})
    with pytest.raises(TypeError, match="give one of them"):
        svod.load(path, "CPU", map_location="CPU")


def test_cut_off_pickles_and_zips_are_refused(tmp_path):
    for name, start in (("new.pt", b"PK\x03\x04"), ("old.pt", b"\x80\x02\x8a\nl\xfc")):
        path = tmp_path / name
        path.write_bytes(start + bytes(100))
        with pytest.raises(StateFileError, match=r"the zip has no directory|pickle"):
            svod.load(path)
        with pytest.raises(StateFileError, match=r"svod\.load"):
            load_file(path)


def test_what_is_no_path_is_refused():
    for given in (0, 0.5, (-2, 7)):
        with pytest.raises(DTypeError, match="from a path or an open file"):
            svod.load(given)


def test_a_header_of_640_bytes_is_not_taken_for_a_pickle(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": np.arange(3)}, path, {"note": "n" * 553})
    assert path.read_bytes()[:8] == (640).to_bytes(8, "little")
    assert svod.load(path)["x"].tolist() == [0, 1, 2]


def test_wide_complex_numbers_come_back(tmp_path):
    values = np.array([1 + 2j, np.nan - 3j, 5e300j])
    z = svod.tensor(values)
    svod.save({"z": z, "again": z, "narrow": z.to(svod.complex64)}, tmp_path / "z")
    found = svod.load(tmp_path / "z")
    assert found["z"].dtype == svod.complex128 and found["narrow"].dtype == svod.complex64
    np.testing.assert_array_equal(found["z"].numpy(), values)
    np.testing.assert_array_equal(found["again"].numpy(), values)


@pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")
def test_a_checkpoint_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    svod.save(svod.ones(2), tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "plain"]
