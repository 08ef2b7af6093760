"""REF: programs that interpret the tensor-level body of a kernel with NumPy.

A body is ``SINK(STORE(target, value), ...)``. A target is a device-less PARAM, or a view of one
made of RESHAPE, PERMUTE, SHRINK and FLIP; a value is a tensor graph over such PARAMs. All values
are computed before anything is written, so a kernel may read what it overwrites. Sizes and places
that variables decide are numbers by then: every run has a body in which the variables are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import DTypeError, ExecutionError, GraphError, ShapeError
from svod.device.buffer import Buffer, Storage
from svod.device.device import Size3, Toolchain
from svod.device.launch import check_bounds
from svod.device.spec import DEFAULT_NAME, CompiledSpec, ProgramSpec, Variable
from svod.ir import ops as O
from svod.ir.evaluate import evaluate
from svod.ir.node import UOp, const, make
from svod.schedule.cache import Cache
from svod.schedule.sizes import SIZED, map_nodes, reachable, replace_in_size, variables_of

Array = NDArray[Any]
# Bodies in which variables have values.
_bodies: Cache[tuple[UOp, tuple[int, ...]], UOp] = Cache("bodies of REF", lambda: 1024)


class RefProgram:
    """A kernel body that NumPy runs."""

    __slots__ = ("_params", "_variables", "body", "globals", "ins", "name", "outs", "var_names")

    def __init__(
        self, body: UOp, name: str = DEFAULT_NAME, var_names: Sequence[str] | None = None
    ) -> None:
        nodes = body.toposort()
        self.body = body
        self.name = name
        self._params = [n for n in nodes if n.op == O.PARAM and not n.src]
        self._variables = [n for n in reachable((body,)) if n.op == O.DEFINE_VAR]
        self.globals, self.outs, self.ins = argument_slots(body)
        names = sorted({n.arg.name for n in self._variables}) if var_names is None else var_names
        self.var_names = tuple(names)

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        """Run on memory of this process: one address per slot of ``globals``."""
        if len(buffers) < len(self.globals):
            raise ExecutionError(
                f"kernel {self.name} takes {len(self.globals)} buffers, got {len(buffers)}"
            )
        found: dict[int, Buffer] = {}
        for param in self._params:
            slot, shape = param.arg
            size = math.prod(shape)
            address = buffers[self.globals.index(slot)]
            storage = Storage.wrap("REF", size * param.dtype.itemsize, address, None)
            if slot not in found or found[slot].size < size:
                found[slot] = Buffer(storage, size, param.dtype)
        self._run(found, vals)

    def run_buffers(self, buffers: Sequence[Buffer], vals: Sequence[int] = ()) -> None:
        """Run on buffers, one per slot, and write the results into those that are stored to."""
        missing = [slot for slot in self.globals if slot >= len(buffers)]
        if missing:
            raise ExecutionError(
                f"kernel {self.name} has no buffer for slot {missing[0]}: got {len(buffers)}"
            )
        for slot in self.outs:
            buffers[slot].require_writable()
        self._run(dict(enumerate(buffers)), vals)

    def _run(self, buffers: Mapping[int, Buffer], vals: Sequence[int]) -> None:
        leaves: dict[UOp, Any] = {p: _argument(p, buffers[p.arg.slot]) for p in self._params}
        body = self._with_values(vals) if self._variables else self.body
        stores = [(target, evaluate(value, leaves)) for target, value in _stores(body)]
        for target, value in stores:
            _write(target, value, leaves)

    def _with_values(self, vals: Sequence[int]) -> UOp:
        """The body in which variables have these values, also in shapes and as places."""
        if len(vals) < len(self.var_names):
            raise ExecutionError(
                f"kernel {self.name} has {len(self.var_names)} var names but only "
                f"{len(vals)} values"
            )
        by_name = dict(zip(self.var_names, vals, strict=False))
        for node in self._variables:
            check_bounds(node.arg.name, by_name[node.arg.name], node.arg.lo, node.arg.hi)
        key = tuple([by_name[node.arg.name] for node in self._variables])
        found = _bodies.get((self.body, key))
        if found is None:
            given = {n: const(v, n.dtype) for n, v in zip(self._variables, key, strict=True)}
            found = _bodies.insert((self.body, key), _given(self.body, given))
        return found

    def __repr__(self) -> str:
        return f"RefProgram({self.name}, outs={self.outs}, ins={self.ins})"


def _given(body: UOp, values: dict[UOp, UOp]) -> UOp:
    done = dict(values)
    for node in body.toposort():
        if node in done:
            continue
        src = tuple([done[s] for s in node.src])
        arg = node.arg
        if node.op in SIZED:
            arg = map_nodes(arg, lambda size: replace_in_size(size, values))
        is_same = src == node.src and arg is node.arg
        done[node] = node if is_same else make(node.op, node.dtype, src, arg)
    return done[body]


Slots = tuple[int, ...]


def argument_slots(body: UOp) -> tuple[Slots, Slots, Slots]:
    """All argument slots of a tensor-level body, those written, and those read."""
    stores = _stores(body)
    outs = {_stored_param(target).arg.slot for target, _ in stores}
    ins = {
        node.arg.slot
        for _, value in stores
        for node in value.toposort()
        if node.op == O.PARAM and not node.src
    }
    return tuple(sorted(outs | ins)), tuple(sorted(outs)), tuple(sorted(ins))


def _stores(body: UOp) -> list[tuple[UOp, UOp]]:
    """What is written where; a SCATTER writes its first source with values put into it."""
    if body.op != O.SINK or not body.src:
        raise GraphError(f"a REF kernel is a SINK of STOREs, got {O.NAMES[body.op]}")
    found = []
    for store in body.src:
        if store.op == O.SCATTER:
            found.append((store.src[0], store))
            continue
        if store.op != O.STORE:
            raise GraphError(f"a REF kernel is a SINK of STOREs, got {O.NAMES[store.op]} in it")
        target, value = store.src
        if value.shape not in (target.shape, ()):
            raise ShapeError(f"cannot store a value of shape {value.shape} into {target.shape}")
        if value.dtype is not target.dtype:
            raise DTypeError(f"cannot store a value of {value.dtype} into {target.dtype}")
        found.append((target, value))
    return found


def _stored_param(target: UOp) -> UOp:
    while target.op in _VIEWS:
        target = target.src[0]
    if target.op != O.PARAM or target.src:
        raise GraphError(f"a STORE cannot write through {O.NAMES[target.op]}")
    return target


_VIEWS = frozenset({O.RESHAPE, O.PERMUTE, O.SHRINK, O.FLIP})


def _argument(param: UOp, buffer: Buffer) -> Array:
    shape = param.arg.shape
    if buffer.size != math.prod(shape) or buffer.dtype is not param.dtype:
        raise ShapeError(f"{buffer!r} does not fit argument {param.arg.slot}: {param.dtype}{shape}")
    return buffer.numpy().reshape(shape)


def _write(target: UOp, value: Array, leaves: Mapping[UOp, Array]) -> None:
    param = _stored_param(target)
    memory = leaves[param]
    if target is param:
        memory[...] = value
        return
    # Where each element of the view lies; a reshape of a slice is no NumPy view, this always works.
    places = np.arange(memory.size).reshape(memory.shape)
    for view in _views(target):
        places = _move(view, places)
    memory.reshape(-1)[places] = value


def _views(target: UOp) -> list[UOp]:
    found = []
    while target.op != O.PARAM:
        found.append(target)
        target = target.src[0]
    return found[::-1]


def _move(view: UOp, places: NDArray[np.int64]) -> NDArray[np.int64]:
    if view.op == O.RESHAPE:
        return places.reshape(view.arg)
    if view.op == O.PERMUTE:
        return places.transpose(view.arg)
    if view.op == O.FLIP:
        return np.flip(places, view.arg)
    return places[tuple([slice(start, stop) for start, stop in view.arg])]


class RefRenderer:
    """ "Source" is the printed body."""

    def __init__(self, device: str = "REF") -> None:
        self.device = device

    def render(self, ast: UOp, name: str | None = None) -> ProgramSpec:
        from svod.ir.text import tree

        spec = ProgramSpec(name or DEFAULT_NAME, tree(ast), self.device, ast)
        found = sorted(variables_of(ast))
        spec.vars = [Variable(v.name, v.lo, v.hi) for v in found]
        spec.var_names = [v.name for v in found]
        spec.set_buffer_metadata(*argument_slots(ast))
        spec.buf_count = len(spec.globals)
        return spec

    def decompositor(self) -> None:
        """NumPy does everything."""


class RefCompiler:
    """Nothing to compile."""

    def compile(self, spec: ProgramSpec) -> CompiledSpec:
        return CompiledSpec(
            spec.name,
            spec.ast,
            src=spec.src,
            var_names=tuple(spec.var_names),
            global_size=spec.global_size,
            local_size=spec.local_size,
            buf_count=spec.buf_count,
        )

    def cache_key(self) -> str:
        return "numpy"


def load_ref(compiled: CompiledSpec) -> RefProgram:
    """The runtime of REF."""
    return RefProgram(compiled.ast, compiled.name, compiled.var_names)


def ref_toolchain() -> Toolchain:
    """The interpreter as renderer, compiler and runtime."""
    return Toolchain(((RefRenderer(), RefCompiler()),), load_ref)
