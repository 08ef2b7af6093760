"""`svod inspect`: what a model takes, gives and is made of, without compiling anything.

In: an ONNX file or a saved plan. Out: inputs, outputs, sizes, operators with counts, weights, and
everything that is not supported at once; of a plan its ports, kernels and memory.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from svod.tools.model_arguments import is_plan, open_plan, require_file, shape_text, size_name
from svod.tools.report import Report, byte_size, table

MOST_DEPTH = 64  # graphs inside each other; the reader of files has the same limit


def inspect(options: argparse.Namespace) -> Report:
    """The verb."""
    return _plan(options) if is_plan(options.model) else _model(options)


def _model(options: argparse.Namespace) -> Report:
    require_file(options.model)
    from svod.frontend.onnx import operators  # noqa: F401  # fills the registry
    from svod.frontend.onnx.file import open_file
    from svod.frontend.onnx.importer import Importer

    file = open_file(options.model)
    message = file.message
    counts: Counter[str] = Counter()
    for node in [*_nodes(message.graph, 0), *[n for f in message.functions for n in f.nodes]]:
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        counts[domain + node.op_type] += 1
    tensors = message.graph.initializers
    data: dict[str, Any] = {
        "file": options.model,
        "bytes": os.path.getsize(options.model),
        "producer": f"{message.producer_name} {message.producer_version}".strip(),
        "ir_version": message.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in message.opset_import},
        "inputs": [_value(i) for i in file.inputs],
        "outputs": [_value(o) for o in file.outputs],
        "sizes": _sizes(file.inputs, dict(options.dim)),
        "weights": {"tensors": len(tensors), "bytes": sum(map(_bytes, tensors))},
        "nodes": sum(counts.values()),
        "operators": dict(counts.most_common()),
        "functions": [f.name for f in message.functions],
        "unsupported": Importer(message, file.store, options.device).unsupported(),
    }
    return Report(data, _model_text(data), ok=not data["unsupported"])


def _nodes(graph: Any, depth: int) -> Iterator[Any]:
    """The nodes of a graph and of the graphs in it."""
    for node in graph.nodes if depth < MOST_DEPTH else ():
        yield node
        for attribute in node.attributes:
            for inner in [g for g in (attribute.g, *attribute.graphs) if g is not None]:
                yield from _nodes(inner, depth + 1)


def _value(info: Any) -> dict[str, Any]:
    shape = None if info.shape is None else list(info.shape)
    return {"name": info.name, "type": info.type if info.elem else info.form, "shape": shape}


def _sizes(inputs: Any, dims: dict[str, Any]) -> dict[str, Any]:
    """The sizes that may vary, with what --dim says of them."""
    names = [size_name(i, axis) for i in inputs for axis in range(len(i.shape or ()))]
    return {n: dims.get(n) for n in dict.fromkeys(names) if isinstance(n, str)}


def _bytes(tensor: Any) -> int:
    from svod.frontend.onnx.tensors import shape_of
    from svod.frontend.onnx.types import element

    count = 1
    for size in shape_of(tensor):
        count *= size
    return -(-count * element(tensor.data_type).bits // 8)


def _model_text(data: dict[str, Any]) -> str:
    opsets = ", ".join([f"{name} {version}" for name, version in data["opsets"].items()])
    weights = data["weights"]
    lines = [
        f"{data['file']}, {byte_size(data['bytes'])}: {data['nodes']} nodes, "
        f"{weights['tensors']} weights of {byte_size(weights['bytes'])}",
        f"operator sets {opsets}; made by {data['producer'] or 'nobody who says so'}",
        "",
        table([_row(kind[:-1], v) for kind in ("inputs", "outputs") for v in data[kind]]),
    ]
    if data["sizes"]:
        named = [f"{n}={_range(d)}" for n, d in data["sizes"].items()]
        lines += ["", f"sizes that vary: {', '.join(named)}"]
    rows = [[count, name] for name, count in data["operators"].items()]
    lines += ["", "operators", table(rows, indent=2, right=frozenset({0}))]
    if data["unsupported"]:
        lines += ["", f"not supported: {len(data['unsupported'])}"]
        lines += [f"  {problem}" for problem in data["unsupported"]]
    else:
        lines += ["", "Every operator is supported."]
    return "\n".join(lines)


def _row(kind: str, value: dict[str, Any]) -> list[str]:
    return [kind, value["name"], value["type"], shape_text(value["shape"])]


def _range(size: Any) -> str:
    return "?" if size is None else str(size) if isinstance(size, int) else f"{size[0]}:{size[1]}"


def _plan(options: argparse.Namespace) -> Report:
    from svod.ir.symbolic import size_text

    plan = open_plan(options)
    ports = [
        {
            "kind": "output" if p.is_output else "input",
            "name": p.name,
            "type": p.dtype.name,
            "shape": [n if isinstance(n, int) else size_text(n) for n in p.shape],
        }
        for p in plan.ports
    ]
    kernels = Counter(op.kernel.entry_point for op in plan.prepared_kernels())
    data: dict[str, Any] = {
        "file": options.model,
        "bytes": os.path.getsize(options.model),
        "device": plan.device(),
        "inputs": [p for p in ports if p["kind"] == "input"],
        "outputs": [p for p in ports if p["kind"] == "output"],
        "kernels": dict(kernels.most_common()),
        "memory": {
            "constants": plan.memory.constant_bytes,
            "intermediate": plan.memory.planned_bytes,
            "fixed": plan.memory.fixed_bytes,
        },
    }
    memory = ", ".join([f"{name} {byte_size(size)}" for name, size in data["memory"].items()])
    lines = [
        f"{options.model}, {byte_size(data['bytes'])}: {sum(kernels.values())} calls of "
        f"{len(kernels)} kernels on {plan.device()}",
        f"memory: {memory}",
        "",
        table([[p["kind"], p["name"], p["type"], shape_text(p["shape"])] for p in ports]),
        "",
        "kernels",
        table([[n, name] for name, n in data["kernels"].items()], 2, frozenset({0})),
    ]
    return Report(data, "\n".join(lines))
