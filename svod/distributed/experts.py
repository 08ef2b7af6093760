"""A layer of experts: each token is computed by the few networks that a gate chooses for it.

Weights of all experts are stacked along a first axis: `expert_parallel` splits that axis, so that a
rank has its own experts, and tokens reach them by what the rules of placement insert. An expert has
room for a fixed number of tokens; those beyond it are passed by, with zeros as their result.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

from svod.base.errors import ConfigError
from svod.distributed.parallel import shard_module
from svod.ir.placement import Mesh
from svod.nn.functional import one_hot
from svod.nn.layers import Linear, parameter
from svod.nn.module import Module
from svod.tensor.ops.matrix_products import einsum
from svod.tensor.tensor import Tensor


class Experts(Module):
    """``count`` networks of two layers, of which ``chosen`` compute each token.

    ``capacity`` is how many times its fair share of tokens an expert has room for.
    """

    def __init__(
        self, width: int, hidden: int, count: int, chosen: int = 1, capacity: float = 2.0,
        device: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 1 <= chosen <= count:
            raise ConfigError(f"{chosen} of {count} experts cannot be chosen")
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.count, self.chosen, self.capacity = count, chosen, capacity
        self.gate = Linear(width, count, bias=False, **made)
        self.up = parameter(count, width, hidden, bound=1 / sqrt(width), **made)
        self.down = parameter(count, hidden, width, bound=1 / sqrt(hidden), **made)

    def forward(self, x: Tensor) -> Tensor:
        """Each token of (.., width) as the sum of its experts, weighted by the gate."""
        tokens = x.reshape(-1, x.shape[-1])
        room = ceil(tokens.shape[0] * self.chosen / self.count * self.capacity)
        weights = self.gate(tokens).softmax(-1)
        best = weights.topk(self.chosen, -1)
        shares = best.values / best.values.sum(-1, keepdim=True)
        is_for = one_hot(best.indices, self.count).cast(tokens.dtype)  # token, choice, expert
        # First choices of all tokens take their places before second ones do.
        flat = is_for.transpose(0, 1).reshape(-1, self.count)
        before = (flat.cumsum(0) - flat).reshape(self.chosen, -1, self.count).transpose(0, 1)
        place = (before * is_for).sum(-1)
        slots = one_hot(place.clamp(0, room - 1).cast("int64"), room).cast(tokens.dtype)
        slots = slots * (place < room).cast(tokens.dtype).unsqueeze(-1)
        goes = einsum("tke,tkc->tkec", is_for, slots)
        inside = einsum("tkec,td->ecd", goes, tokens)
        found = (inside @ self.up).gelu() @ self.down
        back = einsum("tkec,tk->tec", goes, shares)
        return einsum("tec,ecd->td", back, found).reshape(*x.shape)


def expert_parallel(module: Module, grid: Mesh, axis: str = "model") -> Module:
    """Put a module on a mesh with the experts in it over an axis, in place; all else is whole."""
    layout = {}
    for path, part in module.named_modules():
        if isinstance(part, Experts):
            lead = f"{path}." if path else ""
            layout |= {f"{lead}{name}": (axis, None, None) for name in ("up", "down")}
    return shard_module(module, grid, layout)
