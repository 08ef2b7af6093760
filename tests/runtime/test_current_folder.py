"""Nothing is taken from the current folder: no module, no library, no setting, no cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What Python, Svod and its workers load, and the names of libraries that are opened.
MODULES = ("struct", "json", "queue", "subprocess", "numpy", "llvmlite", "ml_dtypes", "svod")
LIBRARIES = ("libm.so.6", "libgcc_s.so.1", "libcuda.so.1", "libcuda.so")

SEARCH = """
import numpy as np
import svod
from svod.runtime.search_pool import Job, WorkerPool
x = svod.Tensor(np.ones((64, 64), np.float32))
assert ((x @ x).sum().item()) == 64.0**3
from svod.device.cuda import driver  # looks for libraries
try:
    driver.driver()
except svod.errors.DeviceError:
    pass
with WorkerPool(1) as pool:
    [answer] = pool.compile_all([Job("f", "nonsense", 10)], 60)
assert answer.reason == "panic_in_worker" and "GraphError" in answer.detail, answer
import os
assert sorted(os.listdir()) == sorted(os.environ["BEFORE"].split()), os.listdir()
print("done")
"""


def test_modules_and_libraries_of_the_current_folder_are_not_loaded(tmp_path: Path) -> None:
    here, script = tmp_path / "here", tmp_path / "script.py"
    here.mkdir()
    for name in MODULES:
        (here / f"{name}.py").write_text("open('taken', 'w'); raise SystemExit('taken')")
    for name in LIBRARIES:
        (here / name).write_bytes(b"no library")
    (here / "svod.toml").write_text("debug = 6")
    script.write_text(SEARCH)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SVOD_CACHE_DIR": str(tmp_path / "cache"),
        "BEFORE": " ".join(os.listdir(here)),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=here, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
    assert not (here / "taken").exists()
