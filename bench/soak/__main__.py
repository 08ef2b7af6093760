"""`python -m bench.soak NAME`, in the repository: one of the long checks.

forks: children forked beside compiling threads. graphs: fresh graphs, memory flat. kill: processes
killed at any moment. ranks: one rank of four killed, which the others have to say. threads: 32
threads on shared plans. everything: all kinds of work at once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module

NAMES = ("forks", "graphs", "kill", "ranks", "threads", "everything")


def main() -> int:
    """Run one soak with a cache folder of its own, so that everything is compiled."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(f"usage: python -m bench.soak {{{','.join(NAMES)}}} [--count N] [--minutes M]")
        return 2
    with tempfile.TemporaryDirectory(prefix="svod-soak-") as folder:
        os.environ["SVOD_CACHE_DIR"] = folder
        status: int = import_module(f"bench.soak.{sys.argv[1]}").main(sys.argv[2:])
        return status


if __name__ == "__main__":
    sys.exit(main())
