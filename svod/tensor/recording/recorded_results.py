"""The results of a recorded function: what each of them is, and the tensors of one run.

A result is a value the plan computes, an argument that is given back or whose memory was taken
over, or something that is the same in every run. Which results are one value is known only when
the graph has been simplified, so `joined` reads it off the plan; each is a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.device.buffer import Buffer
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.placement import Placed
from svod.ir.sweep import note_buffers
from svod.schedule.sizes import replace_in_size
from svod.tensor.core import tensor_registry
from svod.tensor.core.tensor_core import Core, tensor_of, wrap
from svod.tensor.views.aliases import linked

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Line = tuple[str, int]


class Output(NamedTuple):
    """A result of the function: of the plan, an argument, or something that never changes."""

    port: str = ""  # of the plan
    same: int = -1  # the place of an earlier result that is the very same tensor
    is_twin: bool = False  # an earlier result has the memory of the port
    argument: int = -1  # a leaf that is given back, or whose memory was taken over
    is_same: bool = False  # the argument itself, not a view of it
    value: Any = None
    shape: tuple[Any, ...] = ()
    size: int = 0
    dtype: Any = None  # None: the value
    device: str = ""
    has_sizes: bool = False  # the shape holds variables
    is_complex: bool = False  # shape, size and dtype are those of its pairs of floats
    placed: Placed | None = None  # how it is held on a mesh
    held: int = -1  # elements of it in this process, where these are not all of it

    @property
    def own_size(self) -> int:
        """How many elements this process keeps of it."""
        return self.size if self.held < 0 else self.held

    def in_parts(self, placed: Placed | None, held: int) -> Output:
        """A result over a mesh."""
        return self._replace(placed=placed, held=held)


def joined(
    results: Sequence[Output], tensors: Sequence[Any], places: Mapping[str, int]
) -> list[Output]:
    """The results of one memory under its first port; ``places`` is where the plan keeps ports."""
    first: dict[int, str] = {}  # place in the plan -> port
    known: dict[int, int] = {}  # tensor -> place among the results
    found = []
    for number, (result, tensor) in enumerate(zip(results, tensors, strict=True)):
        if result.port:
            place = places[result.port]
            port = first.setdefault(place, result.port)
            same = known.setdefault(id(tensor), number)
            result = result._replace(
                port=port,
                is_twin=any(r.port == port for r in found),
                same=same if same < number else -1,
            )
        found.append(result)
    return found


class Wrapping:
    """Tensors over what one run of a plan left behind."""

    __slots__ = ("bases", "held", "line", "values")

    def __init__(
        self, held: Mapping[str, Buffer], values: Mapping[str, int], line: Line | None
    ) -> None:
        self.held = held  # new memory by port
        self.values = values  # of variables
        self.line = line
        self.bases: dict[str, UOp] = {}

    def results(self, results: Sequence[Output], leaves: Sequence[Any]) -> list[Any]:
        """The results in order."""
        found: list[Any] = []
        for result in results:
            if result.same >= 0:
                found.append(found[result.same])
            elif result.argument >= 0:
                found.append(self._of_argument(result, leaves[result.argument]))
            elif result.dtype is not None:
                found.append(self._shown(result, self._memory(result)))
            else:
                found.append(result.value)
        return found

    def _memory(self, result: Output) -> UOp:
        """New memory, or that of an earlier result, or none where there are no elements."""
        if result.is_twin:
            return tensor_registry.twin_of(self.bases[result.port])
        buffer = self.held.get(result.port) or Buffer.new(result.device, 0, result.dtype)
        node = B.new_buffer(result.size, result.dtype, result.device, buffer)
        node.arg.placed = result.placed
        note_buffers((node,))
        self.bases[result.port] = node
        return node

    def _of_argument(self, result: Output, given: Any) -> Any:
        if not isinstance(given, Core):
            given = tensor_of(given)
        elif result.is_same:
            return given
        found = self._shown(result, B.floats_of(given.uop))
        return found if result.has_sizes else linked(found, given, ((B.reshape, found.shape),))

    def _shown(self, result: Output, node: UOp) -> Tensor:
        shape = result.shape
        if node.op != O.BUFFER:
            node = B.reshape(node, with_values(shape, self.values))
        elif result.has_sizes:
            node = B.view_as(node, with_values(shape, self.values))
        elif len(shape) != 1:
            node = make(O.RESHAPE, node.dtype, (node,), shape)
            node._shape = shape
        if result.is_complex:
            node = B.complex_view(node)
        node.origin = self.line
        return wrap(node, result.device)


def with_values(shape: tuple[Any, ...], values: Mapping[str, int]) -> tuple[Any, ...]:
    """The shape with the variables bound."""
    if not any(isinstance(size, UOp) for size in shape):
        return shape
    found = []
    for size in shape:
        if isinstance(size, UOp):
            free = [n for n in size.toposort() if n.op == O.DEFINE_VAR and n.arg.name in values]
            size = replace_in_size(size, {n: n.bind(values[n.arg.name]) for n in free})
        found.append(size)
    return tuple(found)
