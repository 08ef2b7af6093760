"""svod.save and svod.load: what goes in comes back, and hostile files are refused."""

from __future__ import annotations

import math

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
