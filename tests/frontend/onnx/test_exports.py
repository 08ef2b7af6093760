"""Small models of torchvision and transformers, exported by torch when the test runs: one plan for
all batches and lengths, with torch's results. The long lane runs them; `zoo.py` has the full ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import svod
from svod.device.cpu.compiler import counters
from tests.frontend.onnx.zoo import MODELS, case_of, difference, export, has_all, is_as_planned

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not has_all(), reason="torch, torchvision, transformers or onnxscript"),
]


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_has_one_plan_and_the_results_of_torch(name: str, tmp_path: Path) -> None:
    case = case_of(name, small=True)
    export(case, tmp_path / "model.onnx")
    model = svod.onnx.load(tmp_path / "model.onnx")
    assert difference(model, case, case.resized(2, 16)) < 1e-4
    before = dict(counters)
    for batch, length in ((1, 16), (3, 7), (5, 33)):
        assert difference(model, case, case.resized(batch, length)) < 1e-4
    assert counters == before
    assert is_as_planned(name, model.notes)
