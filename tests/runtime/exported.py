"""Exported plans as a C program sees them: compiled by gcc and called by pointers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svod.device.cpu.elf import _read_sections, _read_symbols

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-std=c11", "-D_DEFAULT_SOURCE")


class Model:
    """A folder with an exported plan, as a shared library of this process."""

    def __init__(self, plan: Any, folder: Path, **options: Any) -> None:
        plan.export(folder, **options)
        self.folder, self.name = folder, options.get("name", "model")
        library = folder / f"{self.name}.so"
        subprocess.run(
            [str(GCC), "-shared", "-o", library, folder / f"{self.name}.o", "-lm"], check=True
        )
        self.code = ctypes.CDLL(str(library))
        self.ports = [
            port
            for port in plan.ports
            if port.is_output or port.name in options.get("inputs", [port.name])
        ]
        self.variables = sorted(plan.bounds)
        self.header = (folder / f"{self.name}.h").read_text()
        self.weights = aligned((folder / f"{self.name}.weights").read_bytes())
        self.workspace_bytes = self.constant("WORKSPACE_BYTES")

    def constant(self, word: str) -> int:
        text = self.header.split(f"#define {self.name.upper()}_{word} ")[1].split("\n")[0]
        return int(text.split("/*")[0].replace("((size_t)", "").strip(" )"))

    def start(self, threads: int = 1, weights: Any = None) -> Instance:
        return Instance(self, threads, self.weights if weights is None else weights)


class Instance:
    """An instance; outputs of a run are new arrays."""

    def __init__(self, model: Model, threads: int, weights: Any) -> None:
        self.model = model
        # What the memory held before must not matter.
        self.block = aligned(b"\xa5" * model.workspace_bytes)
        self.started = self._function("start")(
            pointer(self.block), pointer(weights), ctypes.c_int32(threads)
        )
        self.result = 0

    def __call__(self, **given: Any) -> dict[str, np.ndarray]:
        arrays: list[np.ndarray] = []
        for port in self.model.ports:
            if port.is_output:
                kind = np.dtype(port.array_dtype)
                arrays.append(np.full(port.stored_shape, 7, np.uint8).astype(kind))
            else:
                arrays.append(np.ascontiguousarray(given[port.name]))
        sizes = [ctypes.c_int64(given[name]) for name in self.model.variables]
        call = self._function("run")
        self.result = call(pointer(self.block), *[pointer(a) for a in arrays], *sizes)
        return {p.name: a for p, a in zip(self.model.ports, arrays, strict=True) if p.is_output}

    def stop(self) -> None:
        self._function("stop")(pointer(self.block))

    def _function(self, verb: str) -> Any:
        return getattr(self.model.code, f"{self.model.name}_{verb}")


def aligned(data: bytes) -> np.ndarray:
    block = np.zeros(len(data) + 64, np.uint8)
    skip = -block.ctypes.data % 64
    found = block[skip : skip + len(data)]
    found[:] = np.frombuffer(data, np.uint8)
    return found


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def undefined(code: bytes) -> set[str]:
    """What an object expects others to define."""
    _, sections = _read_sections(code)
    found = _read_symbols(code, sections)
    return {symbol.name for symbol in found if symbol.section == 0 and symbol.name}


def defined(code: bytes) -> set[str]:
    """The names an object has for others."""
    _, sections = _read_sections(code)
    found = _read_symbols(code, sections)
    return {symbol.name for symbol in found if symbol.section != 0 and symbol.is_global}


def built_example(folder: Path, name: str = "model", compiler: str = "") -> Path:
    """The example of an exported plan as a program; warnings are errors."""
    program = folder / "example"
    subprocess.run(
        [compiler or str(GCC), *WARNINGS, "-O1", "-g", "-o", program, folder / "example.c",
         folder / f"{name}.o", "-pthread", "-lm"],
        check=True,
    )  # fmt: skip
    return program
