"""`python -m tests.wheel`: build the wheel, install it alone, and use it as a newcomer would.

Runs with the Python that runs this, and with every other one that is named:
`python -m tests.wheel python3.12 python3.13`. Nothing of this folder is seen by what is tested.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("smoke.py")


def main(*pythons: str) -> int:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], ROOT)
        (wheel,) = folder.glob("svod-*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size >> 10:,} KiB")
        for python in pythons or (sys.executable,):
            _try(python, wheel, folder)
    return 0


def _try(python: str, wheel: Path, folder: Path) -> None:
    place = folder / f"with-{Path(python).name}"
    _run([python, "-m", "venv", place], folder)
    inside = place / ("Scripts" if sys.platform == "win32" else "bin")
    _run([inside / "python", "-m", "pip", "install", "-q", wheel], folder)
    _run([inside / "svod", "demo"], folder)
    _run([inside / "svod", "doctor"], folder)
    _run([inside / "python", "-I", PROGRAM], folder)
    print(f"{python}: fine")


def _run(command: list[str | Path], folder: Path) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=folder)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
