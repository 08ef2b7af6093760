"""Pipelines: a model in stages, one on each rank, over the parts of a batch.

A step of a rank is one plan: it receives what the stage before computed of a part, computes its own
stage and sends that on, and the same backwards with gradients. Parts go in the order 1F1B: a rank
begins with as many as there are stages behind it, then takes one forwards and one backwards in
turn, so that no more wait than there are stages. Sends and receives form one chain of nodes, which
keeps that order; a send does not wait for its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from svod.autograd.tensors import grad
from svod.base.errors import ConfigError, ShapeError
from svod.ir.placement import Mesh
from svod.nn.module import Module
from svod.tensor.core import tracing
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.ops.creation import zeros
from svod.tensor.ops.custom_function import custom_function
from svod.tensor.recording.realize import realize
from svod.tensor.tensor import Tensor

SEND, RECEIVE = "distributed.send", "distributed.receive"
Kind = tuple[tuple[int, ...], str]  # shape and dtype of what goes between two stages


class Pipeline:
    """The stages of a model over an axis of a mesh; a rank keeps its own.

    ``backward(x, y)`` gives the mean loss over all parts and leaves gradients in the parameters,
    which an optimizer over ``parameters()`` then uses. Every rank calls it with the same batch.
    """

    def __init__(
        self,
        stages: Sequence[Module],
        loss: Callable[[Tensor, Tensor], Tensor],
        grid: Mesh,
        parts: int,
    ) -> None:
        if len(stages) != grid.ranks:
            raise ConfigError(f"{len(stages)} stages over {grid.ranks} ranks: give one for each")
        if parts < 1:
            raise ConfigError(f"a batch goes through in at least one part, not {parts}")
        self.loss, self.grid, self.parts = loss, grid, parts
        self.count = len(stages)
        self.place = 0 if grid.is_whole else grid.hosted[0]
        self.stages = list(stages) if grid.is_whole else [stages[self.place]]
        self._kinds: dict[Kind, Kind | None] = {}  # of a part of the batch -> of what comes in
        self._chain: Tensor | None = None
        self._number = 0

    def parameters(self) -> Iterator[Tensor]:
        """Those of the stages that this process has."""
        return (p for stage in self.stages for p in stage.parameters())

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss over a batch; its gradients are added to those of the parameters."""
        if x.shape[0] % self.parts:
            raise ShapeError(f"{x.shape[0]} samples do not make {self.parts} equal parts")
        pairs = list(zip(x.chunk(self.parts), y.chunk(self.parts), strict=True))
        params = [p for p in self.parameters() if p.requires_grad]
        loss, found = self._alone(pairs, params) if self.grid.is_whole else self._one(pairs, params)
        for p, g in zip(params, found, strict=True):
            p.grad = g if p.grad is None else p.grad + g
        if not tracing.state.depth:  # sends are made once
            realize([loss, *[p.grad for p in params if p.grad is not None]])
        return loss

    # -- every stage is in this process ------------------------------------------------------------

    def _alone(
        self, pairs: Sequence[tuple[Tensor, Tensor]], params: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        losses = []
        for x, y in pairs:
            for stage in self.stages:
                x = stage(x)
            losses.append(self.loss(x, y) / self.parts)
        total = losses[0]
        for loss in losses[1:]:
            total = total + loss
        return total.detach(), _gradients(total, params, None)

    # -- one stage in each process -----------------------------------------------------------------

    def _one(
        self, pairs: Sequence[tuple[Tensor, Tensor]], params: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        from svod.distributed.carrier import the_carrier

        the_carrier().can_send()
        first, last = self.place == 0, self.place == self.count - 1
        self._chain, self._number = None, 0
        kind = self._kind_of_input(pairs[0][0])
        inputs: dict[int, Tensor] = {}
        outputs: dict[int, Tensor] = {}
        totals: list[Tensor] = []
        total: Tensor | None = None
        for is_forward, i in order_of_parts(self.place, self.count, len(pairs)):
            x, y = pairs[i]
            if is_forward:
                if not first:
                    assert kind is not None
                    x = self._receive(self.place - 1, kind).detach().requires_grad_()
                inputs[i] = x
                out = self.stages[0](x)
                outputs[i] = self.loss(out, y) / self.parts if last else out
                if last:
                    part = outputs[i].detach()
                    total = part if total is None else total + part
                else:
                    self._send(out.detach(), self.place + 1)
                continue
            out = outputs.pop(i)
            seed = None if last else self._receive(self.place + 1, _kind(out))
            wanted = [*params] if first else [*params, inputs[i]]
            found = _gradients(out, wanted, seed)
            if not first:
                self._send(found.pop(), self.place - 1)
            totals = found if not totals else [a + b for a, b in zip(totals, found, strict=True)]
        return self._shared(total), totals

    def _kind_of_input(self, x: Tensor) -> Kind | None:
        """Shape and dtype of what the stage before sends; the ranks tell each other once."""
        from svod.distributed.carrier import the_carrier

        own = _kind(x)
        if own not in self._kinds:
            kind, carrier = own, the_carrier()
            if self.place:
                shape, dtype = carrier.hear(self.place - 1, "shape of a stage").split("|")
                kind = (tuple([int(n) for n in shape.split(",") if n]), dtype)
            if self.place < self.count - 1:
                with no_grad():
                    out = self.stages[0](x if not self.place else zeros(*kind[0], dtype=kind[1]))
                shape, dtype = _kind(out)
                carrier.tell(self.place + 1, f"{','.join(map(str, shape))}|{dtype}")
            self._kinds[own] = kind
        return self._kinds[own]

    def _shared(self, total: Tensor | None) -> Tensor:
        """The loss, which the last stage tells the others."""
        if total is None:
            return self._receive(self.count - 1, ((), "float32"))
        total = total.cast("float32")
        for other in range(self.count - 1):
            self._send(total, other)
        return total if self._chain is None else total + self._chain.reshape(())

    def _send(self, value: Tensor, to: int) -> None:
        self._chain = self._linked(SEND, (to,), (1,), "float32", value.contiguous())

    def _receive(self, source: int, kind: Kind) -> Tensor:
        shape, dtype = kind
        found = self._linked(RECEIVE, (source,), shape or (1,), dtype)
        self._chain = found
        return found.reshape(shape)

    def _linked(
        self, kind: str, attrs: tuple[int, ...], shape: Sequence[int], dtype: str, *values: Tensor
    ) -> Tensor:
        self._number += 1
        before = () if self._chain is None else (self._chain,)
        given = (*before, *values)
        return custom_function(kind, *given, shape=shape, dtype=dtype, attrs=(*attrs, self._number))


def order_of_parts(place: int, stages: int, parts: int) -> list[tuple[bool, int]]:
    """Forward and backward passes of a stage in the order 1F1B, each with its part."""
    ahead = min(stages - place - 1, parts)
    found = [(True, i) for i in range(ahead)]
    for i in range(parts - ahead):
        found += [(True, ahead + i), (False, i)]
    return found + [(False, i) for i in range(parts - ahead, parts)]


def _kind(t: Tensor) -> Kind:
    return t.shape, t.dtype.name


def _gradients(root: Tensor, wanted: Sequence[Tensor], seed: Any) -> list[Tensor]:
    found = grad(root, wanted, seed, materialize_grads=True)
    return [g for g in found if g is not None]
