"""Derivatives of functions of tensors: products with the Jacobian from either side, and its rows.

The function is called once, with marked stand-ins for its arguments. Whatever is asked is a graph
over them, from which the marks are taken out in the end. Directional derivatives are gradients of
gradients: what arguments receive is linear in the seed, and its gradient for the seed is the
product from the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from svod.base.errors import DTypeError, ShapeError, UnsupportedError
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, elements, substitute
from svod.tensor.core import history
from svod.tensor.core.history import detached
from svod.tensor.core.tensor_core import tensor_of, wrap
from svod.tensor.gradients.batching import batched, stand_in
from svod.tensor.gradients.reverse_mode import GradientError, Mark, gradients, mark
from svod.tensor.tensor import Tensor

_numbers = count()


class Applied:
    """A function applied to arguments that its results can be differentiated by.

    Without ``keeps_graph`` what comes out is plain data. ``is_strict`` refuses results that do not
    depend on an argument.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        keeps_graph: bool,
        is_strict: bool = False,
    ) -> None:
        self.inputs = [_argument(x) for x in inputs]
        self.keeps_graph, self.is_strict = keeps_graph, is_strict
        self._name = f"derivative#{next(_numbers)}"
        self._marks: dict[UOp, UOp] = {}
        self.arguments = [self._marked(t) for t in self.inputs]
        history.state.following += 1  # values realised on the way are still computed from these
        try:
            self.result = function(*self.arguments)
        finally:
            history.state.following -= 1
        self.is_tuple = isinstance(self.result, (tuple, list))
        self.outputs = list(self.result) if self.is_tuple else [self.result]
        for output in self.outputs:
            if not isinstance(output, Tensor) or output.dtype.kind not in "fc":
                shown = output.dtype.name if isinstance(output, Tensor) else type(output).__name__
                raise GradientError(f"a function to differentiate returns floats, not {shown}")

    def values(self) -> Any:
        """What the function returned."""
        found = self.finished([B.floats_of(t.uop) for t in self.outputs], self.outputs)
        return tuple(found) if self.is_tuple else found[0]

    def finished(self, nodes: Sequence[UOp], like: Sequence[Tensor]) -> list[Tensor]:
        """Nodes as tensors without marks."""
        clean = substitute(tuple(nodes), self._marks)
        found = [n if self.keeps_graph else detached(n) for n in clean]
        return [wrap(B.like(t.uop, n), t._device) for n, t in zip(found, like, strict=True)]

    def received(self, seeds: Sequence[UOp]) -> list[UOp | None]:
        """What the arguments receive when the outputs receive the seeds."""
        return self._gradients(self.outputs, seeds, self.arguments)

    def transposed(self, seeds: Sequence[Tensor]) -> list[Tensor]:
        """The product of the seeds with the Jacobian, for each argument."""
        found = self.received([B.floats_of(s.uop) for s in seeds])
        self.check(found, range(len(self.outputs)))
        return self.finished(_filled(found, self.inputs), self.inputs)

    def directed(self, directions: Sequence[UOp]) -> list[UOp]:
        """The product of the Jacobian with a direction for each argument, for each output."""
        seeds = [self._seed(t) for t in self.outputs]
        found = self.received(seeds)
        self.check(found, range(len(self.outputs)))
        roots = [(g, v) for g, v in zip(found, directions, strict=True) if g is not None]
        given = gradients(roots, seeds, history.origin_of) if roots else [None] * len(seeds)
        return _filled(given, self.outputs)

    def rows(self) -> list[list[Tensor]]:
        """The Jacobian of each output by each argument: the shape of one, then of the other."""
        found = []
        for position, output in enumerate(self.outputs):
            self._check_real(output)
            node = B.floats_of(output.uop)
            one = stand_in(node.shape, node.dtype)
            given = self._gradients([output], [one], self.arguments)
            self.check(given, [position])
            parts = self._for_all(_filled(given, self.inputs), one, node.shape)
            shaped = [
                B.reshape(p, (*node.shape, *t.shape))
                for p, t in zip(parts, self.inputs, strict=True)
            ]
            found.append(self.finished(shaped, self.inputs))
        return found

    def columns(self) -> list[list[Tensor]]:
        """The same, from directional derivatives."""
        found: list[list[Tensor]] = [[] for _ in self.outputs]
        for position, t in enumerate(self.inputs):
            self._check_real(t)
            one = stand_in(t.shape, t.dtype)
            directions = [B.full(x.shape, 0, x.dtype) for x in self.inputs]
            directions[position] = one
            parts = self._for_all(self.directed(directions), one, t.shape)
            for own, part, output in zip(found, parts, self.outputs, strict=True):
                axes = (*range(1, 1 + output.ndim), 0)
                node = B.reshape(B.permute(part, axes), (*output.shape, *t.shape))
                own += self.finished([node], [t])
        return found

    def check(self, found: Sequence[UOp | None], outputs: Sequence[int]) -> None:
        """Refuse what does not depend on an argument, where that is asked for."""
        for position, node in enumerate(found if self.is_strict else ()):
            if node is None:
                shown = " and ".join([str(i) for i in outputs])
                raise GradientError(
                    f"output {shown} of the function does not depend on input {position}, which "
                    "strict=True does not allow"
                )

    def _marked(self, t: Tensor) -> Tensor:
        own = B.floats_of(t.uop if self.keeps_graph else detached(t.uop))
        node = mark(own, Mark(self._name, "argument", len(self._marks)))
        self._marks[node] = own
        return wrap(B.like(t.uop, node), t._device)

    def _seed(self, like: Tensor) -> UOp:
        node = B.floats_of(like.uop)
        zero = B.full(node.shape, 0, node.dtype)
        found = mark(zero, Mark(self._name, "argument", len(self._marks)))
        self._marks[found] = zero
        return found

    def _gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[UOp], targets: Sequence[Tensor]
    ) -> list[UOp | None]:
        roots = [(B.floats_of(t.uop), s) for t, s in zip(outputs, seeds, strict=True)]
        return gradients(roots, [B.floats_of(t.uop) for t in targets], history.origin_of)

    def _check_real(self, t: Tensor) -> None:
        if t.dtype.is_complex:
            raise DTypeError(f"a Jacobian is one of real numbers, not {t.dtype.name}: use .real")

    def _for_all(self, nodes: list[UOp], one: UOp, shape: tuple[int, ...]) -> list[UOp]:
        """Nodes for every unit vector in the place of a stand-in, one after the other."""
        units = identity(elements(shape), one.dtype)
        seeds = B.reshape(units, (units.shape[0], *shape))
        try:
            return batched(nodes, {one: seeds}, self.keeps_graph)
        except UnsupportedError:
            return _one_by_one(nodes, one, seeds)


def identity(size: int, dtype: DType) -> UOp:
    """Ones on the diagonal of a square matrix."""
    line = B.iota(size)
    same = B.binary(O.EQ, B.reshape(line, (size, 1)), B.reshape(line, (1, size)))
    return B.cast(same, dtype)


def _one_by_one(nodes: list[UOp], one: UOp, seeds: UOp) -> list[UOp]:
    found: list[list[UOp]] = [[] for _ in nodes]
    for i in range(seeds.shape[0]):
        pairs = ((i, i + 1), *[(0, n) for n in seeds.shape[1:]])
        seed = B.reshape(B.shrink(seeds, pairs), one.shape)
        for own, node in zip(found, substitute(tuple(nodes), {one: seed}), strict=True):
            own.append(B.reshape(node, (1, *node.shape)))
    return [
        B.cat(own, 0) if own else B.full((0, *node.shape), 0, node.dtype)
        for own, node in zip(found, nodes, strict=True)
    ]


def _argument(x: Any) -> Tensor:
    t = tensor_of(x)
    if t.dtype.kind not in "fc":
        raise DTypeError(f"only floats have derivatives, not {t.dtype.name}")
    return t


def _filled(found: Sequence[UOp | None], like: Sequence[Tensor]) -> list[UOp]:
    """Zeros where nothing arrived."""
    nodes = [B.floats_of(t.uop) for t in like]
    pairs = zip(found, nodes, strict=True)
    return [B.full(t.shape, 0, t.dtype) if n is None else n for n, t in pairs]


def directions_of(v: Any, like: Sequence[Tensor], what: str) -> list[Tensor]:
    """Given vectors in the shapes of tensors; for one number, 1 where none is given."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradientError(f"v may be left out only where the {what} is one number")
        return [like[0].ones_like()]
    given = [v] if not isinstance(v, (tuple, list)) else list(v)
    if len(given) != len(like):
        raise ShapeError(f"{len(given)} vectors for {len(like)} tensors of the {what}")
    found = []
    for own, t in zip(given, like, strict=True):
        vector = tensor_of(own, t)
        if vector.shape != t.shape:
            raise ShapeError(f"a vector of shape {vector.shape} for {what} of shape {t.shape}")
        found.append(vector.cast(t.dtype))
    return found
