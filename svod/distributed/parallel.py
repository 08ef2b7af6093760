"""Models over a mesh: whole on every rank, split for an optimizer, or split inside of layers.

A module is put on a mesh once; its forward pass, its gradients and its optimizer are then those of
any module. Which axis of a parameter is split over which axis of the mesh is a layout: patterns of
names, the first that fits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from svod.base.errors import ConfigError
from svod.ir.placement import Mesh
from svod.nn.attention import MultiheadAttention
from svod.nn.layers import Linear
from svod.nn.module import Module
from svod.nn.optimizer import Optimizer
from svod.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from svod.tensor.core.pytrees import flatten, unflatten
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.recording.realize import realize
from svod.tensor.tensor import Tensor

Spec = tuple[str | None, ...]
Layout = Mapping[str, Spec] | Callable[[str, Tensor], Spec]


def shard_module(module: Module, grid: Mesh, layout: Layout | None = None) -> Module:
    """Put the parameters and buffers of a module on a mesh, in place.

    ``layout`` says how: patterns of names with the mesh axes of their axes, such as
    ``{"*.up.weight": ("model", None)}``, or a function of name and tensor. What it does not name is
    whole on every rank.
    """
    place = _layout(layout or {})
    named = [*module.named_parameters(), *module.named_buffers()]
    with no_grad():
        for name, t in named:
            found = t.shard(grid, place(name, t))
            t.uop, t._device, t._link = found.uop, found._device, None
            t.grad = None
        realize([t for _, t in named])
    return module


def _layout(layout: Layout) -> Callable[[str, Tensor], Spec]:
    if callable(layout):
        return layout
    patterns = dict(layout)

    def place(name: str, t: Tensor) -> Spec:
        for pattern, spec in patterns.items():
            if fnmatchcase(name, pattern):
                return spec
        return ()

    return place


class DataParallel(Module):
    """A module whose inputs are split over an axis of a mesh: each rank computes its own rows.

    Parameters are whole on every rank, their gradients are folded over the axis, several at a time
    and while the rest of the backward pass runs. Tensors and arrays among the arguments are split
    along their first axis; a loss over all rows is the mean of all ranks.
    """

    def __init__(self, module: Module, grid: Mesh, axis: str = "data") -> None:
        super().__init__()
        grid.size(axis)
        self.module = module
        self.grid, self.axis = grid, axis
        if not all(t.device == grid.name for t in module.parameters()):
            shard_module(module, grid)

    def split(self, *tensors: Any) -> Any:
        """Tensors with their first axis split, such as the labels of a batch."""
        found = [self._split(t) for t in tensors]
        return found[0] if len(found) == 1 else tuple(found)

    def _split(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            if not hasattr(value, "__array__"):
                return value
            value = Tensor(value)
        if value.device == self.grid.name:
            return value
        return value.shard(self.grid, (self.axis,) if value.ndim else ())

    def forward(self, *args: Any, **options: Any) -> Any:
        """What the module computes of arguments that are split."""
        leaves, form = flatten((args, options))
        given, named = unflatten(form, [self._split(leaf) for leaf in leaves])
        return self.module(*given, **named)


def zero(
    module: Module, optimizer: Optimizer, grid: Mesh, stage: int = 3, axis: str = "data"
) -> None:
    """Split what training keeps over the ranks of a mesh axis, in place.

    Stages 1 and 2 split the state of the optimizer; of a gradient each rank then gets the part that
    its state is for, and parameters are put together again after the step. Stage 3 splits the
    parameters too: they are whole only while a layer uses them. Call it before the first step.
    """
    if stage not in (1, 2, 3):
        raise ConfigError(f"the stages of zero are 1, 2 and 3, not {stage}")
    if optimizer.state:
        raise ConfigError("zero is called before the first step of the optimizer")
    grid.size(axis)
    shard_module(module, grid, (lambda name, t: longest(t, axis)) if stage == 3 else None)
    optimizer.place_state = lambda t: t.shard(grid, longest(t, axis))


def longest(t: Tensor, axis: str) -> Spec:
    """The longest axis of a tensor over a mesh axis; a number is whole."""
    if not t.ndim:
        return ()
    first = max(range(t.ndim), key=lambda i: (t.shape[i], -i))
    return tuple([axis if i == first else None for i in range(t.ndim)])


def tensor_parallel(module: Module, grid: Mesh, axis: str = "model") -> Module:
    """Put transformer layers on a mesh with each layer split over an axis, in place.

    Networks of two layers are split by the outputs of the first and the inputs of the second, and
    attention by its heads: one sum each, of activations. ``layout_of`` says what that splits.
    """
    return shard_module(module, grid, layout_of(module, axis))


def layout_of(module: Module, axis: str = "model") -> dict[str, Spec]:
    """The layout that splits the transformer layers in a module, by names of parameters."""
    found: dict[str, Spec] = {}
    for path, part in module.named_modules():
        lead = f"{path}." if path else ""
        if isinstance(part, (TransformerEncoderLayer, TransformerDecoderLayer)):
            found |= _columns(f"{lead}linear1", part.linear1, axis)
            found |= _rows(f"{lead}linear2", axis)
        elif isinstance(part, MultiheadAttention):
            if part.is_packed:
                found[f"{lead}in_proj_weight"] = (axis, None)
            else:
                found |= {f"{lead}{name}_proj_weight": (axis, None) for name in "qkv"}
            found |= _rows(f"{lead}out_proj", axis)
    return found


def _columns(name: str, layer: Linear, axis: str) -> dict[str, Spec]:
    weight: dict[str, Spec] = {f"{name}.weight": (axis, None)}
    return weight if layer.bias is None else weight | {f"{name}.bias": (axis,)}


def _rows(name: str, axis: str) -> dict[str, Spec]:
    return {f"{name}.weight": (None, axis)}
