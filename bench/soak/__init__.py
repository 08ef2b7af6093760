"""Long checks that nothing is lost, nothing hangs and memory stays flat; see `__main__`."""

from __future__ import annotations

import argparse


def parser(name: str, about: str | None, count: int, minutes: float) -> argparse.ArgumentParser:
    """What every soak takes: how much, and how long at most."""
    made = argparse.ArgumentParser(f"python -m bench.soak {name}", description=about)
    made.add_argument("--count", type=int, default=count)
    made.add_argument("--minutes", type=float, default=minutes, help="it ends then at the latest")
    return made
