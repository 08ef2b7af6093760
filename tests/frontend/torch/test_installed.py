"""The installed package registers the backend: nothing is imported from Svod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
import sys, torch
assert "svod" in torch._dynamo.list_backends(), torch._dynamo.list_backends()
assert "svod" not in sys.modules
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
x = torch.randn(3, 8)
found = torch.compile(model, backend="svod", options={"fallback": "error"})(x)
torch.testing.assert_close(found, model(x))
found.sum().backward()
assert model[0].weight.grad is not None
print(sys.modules["svod"].__file__)
"""


def _run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.long
def test_a_wheel_gives_torch_the_backend(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    _run(*pip, "wheel", "--no-deps", "-w", str(tmp_path / "wheels"), str(ROOT))
    (wheel,) = (tmp_path / "wheels").glob("svod-*.whl")
    target = tmp_path / "target"
    _run(*pip, "install", "--no-deps", "--target", str(target), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(target)}
    shown = _run(sys.executable, "-c", _PROGRAM, cwd=tmp_path, env=environment)
    assert Path(shown.strip()).is_relative_to(target)
