"""A plugin of pytest that loads one module of svod with a fault in it.

``SVOD_FAULT`` is the fault as JSON, ``SVOD_FAULT_SECONDS`` how long the process may compute. The
module is compiled from the changed tree when it is first imported; every other module, and every
file on disk, stays as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.faults import Fault, planted

PACKAGE = Path(__file__).parents[2] / "svod"


class _Loader(SourceFileLoader):
    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text(encoding="utf-8")
        return compile(planted(text, self.fault), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.path = PACKAGE / fault.file
        self.module = ".".join(("svod", *Path(fault.file).with_suffix("").parts))

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.module:
            return None
        loader = _Loader(name, str(self.path))
        loader.fault = self.fault
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


def plant(fault: Fault) -> None:
    """From now on the module of a fault has it."""
    finder = _Finder(fault)
    assert finder.module not in sys.modules, f"{finder.module} was imported before its fault"
    sys.meta_path.insert(0, finder)


if "SVOD_FAULT" in os.environ:
    plant(Fault(**json.loads(os.environ["SVOD_FAULT"])))
    _limit = int(os.environ["SVOD_FAULT_SECONDS"])
    resource.setrlimit(resource.RLIMIT_CPU, (_limit, resource.RLIM_INFINITY))
