"""`svod launch -n 4 train.py`: a program in several processes, one for each rank of its meshes"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from svod.base.errors import ConfigError
from svod.tools import rank
from svod.tools.report import Report


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """How many ranks, and what they run."""
    verb.add_argument("-n", dest="ranks", type=int, required=True, help="how many processes")
    verb.add_argument("script", help="a Python program")
    verb.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")


def launch(options: argparse.Namespace) -> Report:
    """Run the program under MPI's launcher; it is done when every rank is."""
    if options.ranks < 1:
        raise ConfigError(f"a program needs at least one rank, not {options.ranks}")
    if not Path(options.script).is_file():
        raise ConfigError(f"there is no program {options.script}")
    started = command(options.ranks, options.script, *options.arguments)
    status = subprocess.run(started, check=False).returncode
    data = {"ranks": options.ranks, "status": status}
    return Report(data, f"{options.ranks} ranks, exit status {status}", status == 0)


def command(ranks: int, script: str, *arguments: str) -> list[str]:
    """What starts a program in so many processes."""
    return [launcher(), "-n", str(ranks), sys.executable, rank.__file__, script, *arguments]


def launcher() -> str:
    """The mpiexec beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if found is None:
        raise ConfigError("there is no mpiexec: install MPI, such as the package mpich")
    return found
