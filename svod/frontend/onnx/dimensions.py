"""The named sizes of a file as variables, each with a range that one plan serves.

A range that the user gives stays. Others are learnt: from the first call, wide enough that ordinary
other batches and lengths are inside, and wider when a call goes beyond them; a plan is made again
then. Memory is laid out for the largest sizes, which is why ranges do not start out huge. Exporters
give the batches of several inputs different names; where a graph needs them to be one size, those
that are equal in a call are joined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

import svod
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.file import ValueInfo
from svod.frontend.onnx.registry import Array
from svod.ir.node import UOp

FIRST, OTHER = 16, 128  # the least end of a learnt range: of a first axis (a batch), of others
UNKNOWN_FIRST, UNKNOWN_OTHER = 64, 512  # the same where a plan is made before any call


class Dimensions:
    """Names, ranges and variables of the sizes of a model's inputs."""

    def __init__(
        self, inputs: tuple[ValueInfo, ...], outputs: tuple[ValueInfo, ...], given: dict[str, Any]
    ) -> None:
        self.inputs = inputs
        self.variables: dict[str, UOp | int] = {}
        self._names: dict[str, str] = {}  # of variables
        self._learnt: dict[str, tuple[int, int]] = {}  # ranges of sizes that nobody gave
        self._is_first: dict[str, bool] = {}
        self._joined: dict[str, str] = {}  # sizes that are taken to be another one
        self._may_join = True
        self.taken = {i.name for i in (*inputs, *outputs)}  # names that variables may not have
        for info in inputs:
            for axis, size in enumerate(info.shape or ()):
                name = size if isinstance(size, str) else f"{info.name}.{axis}"
                if isinstance(size, int) or name in self._names:
                    continue
                self._names[name] = plain_name(name, self.taken)
                self._is_first[name] = axis == 0
                if name in given:
                    self.variables[name] = _given(self._names[name], name, given.pop(name))
        if given:
            known = ", ".join(self._names) or "none"
            raise OnnxError(f"the model has no size {sorted(given)[0]!r}: it has {known}")

    @property
    def vary(self) -> bool:
        """Whether any size does."""
        return bool(self._names)

    def shape(self, info: ValueInfo) -> tuple[UOp | int, ...]:
        return tuple(
            [
                s if isinstance(s, int) else self.variables[self._joined.get(name, name)]
                for axis, s in enumerate(info.shape or ())
                if (name := str(s or f"{info.name}.{axis}"))
            ]
        )

    def assume(self) -> None:
        """Ranges for a plan that is made before any call."""
        for name in self._names:
            if name not in self.variables:
                end = UNKNOWN_FIRST if self._is_first[name] else UNKNOWN_OTHER
                self._set(name, 1, end)

    def learn(self, arrays: Mapping[str, Array]) -> list[str]:
        """Make room for the sizes of a call; what changed, in words."""
        changed = []
        sizes = self._sizes(arrays)
        if any(sizes[a] != sizes[b] for a, b in self._joined.items()):
            changed.append(f"{', '.join(self._joined)} of their own")
            self._joined, self._may_join = {}, False
        for name, real in sizes.items():
            low, high = self._learnt.get(name, (1, 0))
            if name in self.variables and name not in self._learnt:
                continue  # given by the user
            if name in self._learnt and low <= real <= high:
                continue
            is_new = name not in self._learnt
            least = (FIRST if self._is_first[name] else OTHER) if is_new else 1
            end = max(high, least, 1 << max(0, real - 1).bit_length())
            self._set(name, min(low, real), end)
            changed.append(f"{name} from {min(low, real)} to {end}")
        return changed

    def join(self, arrays: Mapping[str, Array]) -> str:
        """Take the batches that are equal in a call for one; in words, empty where none are new."""
        sizes = self._sizes(arrays)
        batches = [n for n in self._learnt if self._is_first[n] and n in sizes]
        found = {b: a for a in batches[:1] for b in batches[1:] if sizes[a] == sizes[b]}
        if not self._may_join or not found or found == self._joined:
            return ""
        self._joined = found
        return f"{', '.join(found)} taken to be {batches[0]}"

    def narrow(self, arrays: Mapping[str, Array]) -> list[str]:
        """The ranges that are learnt, only just around the sizes of a call; empty where they are
        that narrow already."""
        changed = []
        for name, real in self._sizes(arrays).items():
            if name not in self._learnt or real < 1:
                continue
            wanted = (real + 1) // 2, 1 << (real - 1).bit_length()
            low, high = max(self._learnt[name][0], wanted[0]), min(self._learnt[name][1], wanted[1])
            if (low, high) != self._learnt[name]:
                self._set(name, low, high)
                changed.append(f"{name} from {low} to {high}")
        return changed

    def values(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        """The sizes that arrays have, by variable."""
        found: dict[str, int] = {}
        for info in self.inputs:
            for size, real in zip(self.shape(info), np.shape(arrays[info.name]), strict=True):
                if isinstance(size, UOp):
                    found[size.arg.name] = real
        return found

    def _sizes(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        found: dict[str, int] = {}
        for info in self.inputs:
            for axis, size in enumerate(info.shape or ()):
                if isinstance(size, int):
                    continue
                name = size or f"{info.name}.{axis}"
                real = np.shape(arrays[info.name])[axis]
                if found.setdefault(name, real) != real:
                    raise OnnxError(
                        f"input {info.name!r}: axis {axis} has {real} elements, but the size "
                        f"{name!r} is {found[name]} elsewhere"
                    )
        return found

    def _set(self, name: str, low: int, high: int) -> None:
        self._learnt[name] = low, high
        plain = self._names[name]
        self.variables[name] = svod.Variable(plain, low, high) if low != high else low


def plain_name(name: str, taken: set[str]) -> str:
    """A name that a variable may have, and no port has."""
    plain = re.sub(r"\W", "_", name)
    plain = plain if plain.isidentifier() else f"d{plain}"
    while plain in taken:
        plain += "_"
    taken.add(plain)
    return plain


def _given(plain: str, name: str, bounds: Any) -> UOp | int:
    if isinstance(bounds, int):
        return bounds
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise OnnxError(f"dims[{name!r}] is a number or a range (1, 64), not {bounds!r}") from None
    return svod.Variable(plain, low, high) if low != high else int(low)
