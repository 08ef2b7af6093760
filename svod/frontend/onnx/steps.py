"""The nodes of a model's own graph, with branches that are known to be taken in place of their If.

A branch is part of the graph then: a plan may be split inside of it, at an If within it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from svod.frontend.onnx.wire import Message


class Steps:
    """Nodes in order, and the graphs whose weights they use; a copy may take other branches."""

    def __init__(self, nodes: list[Message], graphs: list[Message], names: set[str]) -> None:
        self.nodes = nodes
        self.graphs = graphs
        self._names = names  # that something has

    @staticmethod
    def of(graph: Message) -> Steps:
        names = {i.name for i in graph.inputs} | _defined(graph)
        return Steps(list(graph.nodes), [graph], names)

    def copy(self) -> Steps:
        return Steps(list(self.nodes), list(self.graphs), set(self._names))

    def initializers(self) -> set[str]:
        """The names of weights."""
        return {proto.name for graph in self.graphs for proto in graph.initializers}

    def take_branch(self, index: int, condition: Any) -> bool:
        """Put the nodes of a branch in the place of their If; whether that was done.

        It is not where the condition is not known, and where a name of the branch means something
        else outside.
        """
        proto = self.nodes[index]
        if not isinstance(condition, np.ndarray) or condition.size != 1:
            return False
        wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        branch = next((a.g for a in proto.attributes if a.name == wanted), None)
        if branch is None or branch.inputs or len(branch.outputs) < len(proto.outputs):
            return False
        names = _defined(branch)
        if names & self._names:
            return False
        pairs = zip(branch.outputs, proto.outputs, strict=False)
        ends = [_identity(proto.name, inner.name, outer) for inner, outer in pairs if outer]
        self.nodes[index : index + 1] = [*branch.nodes, *ends]
        self.graphs.append(branch)
        self._names |= names
        return True


def _defined(graph: Message) -> set[str]:
    """The names that a graph gives to values of its own."""
    weights: Iterable[str] = [proto.name for proto in graph.initializers]
    sparse = [s.values.name for s in graph.sparse_initializers if s.values is not None]
    return {*weights, *sparse, *[o for n in graph.nodes for o in n.outputs if o]}


def _identity(name: str, source: str, target: str) -> Message:
    found = Message("Node")
    found.op_type, found.name = "Identity", name
    found.inputs, found.outputs = [source], [target]
    return found
