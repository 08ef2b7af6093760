"""The backend of ``torch.compile``: graphs of dynamo through aot_autograd to plans.

In: what dynamo recorded. Out: a callable that takes and gives torch tensors. aot_autograd makes it
functional, writes mutated arguments back, and splits it into forward and backward; operators that
the table does not have are decomposed as far as torch can, and the rest stays with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule

from svod.frontend.torch.ops import TABLE
from svod.frontend.torch.options import Options
from svod.frontend.torch.split import Compiled


def backend(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="svod")`` calls with each graph."""
    chosen = Options.of(options)
    if chosen.threads is not None:
        from svod.runtime.native import set_threads

        set_threads(chosen.threads)
    return aot_autograd(
        fw_compiler=partial(_compiled, options=replace(chosen, freeze=False)),
        inference_compiler=partial(_compiled, options=chosen, is_inference=True),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )(gm, example_inputs)


def _compiled(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: Options, is_inference: bool = False
) -> Callable[[list[Any]], list[Any]]:
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, given in zip(places, example_inputs, strict=True):
        if isinstance(given, torch.Tensor):  # knows the strides that forward results really have
            node.meta["val"] = given
    frozen: Sequence[int] = ()
    if options.freeze and is_inference:
        frozen = _static_arguments()
    found = Compiled(gm, options, frozen)
    _report_strides(found)
    run = found.__call__

    def boxed(args: list[Any]) -> list[Any]:
        return run(args)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # torch passes one list of arguments
    return boxed


def _static_arguments() -> Sequence[int]:
    """Places of parameters and buffers among the arguments."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return () if metadata is None else tuple(metadata.static_input_indices)


def _report_strides(compiled: Compiled) -> None:
    """Tell aot_autograd the strides of results: the backward graph is made for them."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    made = {n: m for stage in compiled.stages for n, m in stage.segment.outputs}
    metadata = context.fw_metadata
    tokens = 0 if metadata is None else len(metadata.tokens)  # order of effects, no results
    for node in compiled.results[tokens:]:
        value = getattr(node, "meta", {}).get("val")
        if not isinstance(value, torch.Tensor):
            context.output_strides.append(None)
            continue
        strides = made[node].strides if node in made else value.stride()
        context.output_strides.append(tuple(strides))


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Callable[..., Any]]:
    """How operators are taken apart: all that torch knows, except those the table has."""
    found = {**decomposition_table, **core_aten_decompositions()}
    return {op: how for op, how in found.items() if str(op) not in TABLE}
