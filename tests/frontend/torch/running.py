"""One operator through the table: recorded as aot_autograd would, run as plans, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from svod.frontend.torch.aot import decompositions
from svod.frontend.torch.options import Options
from svod.frontend.torch.split import Compiled

TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
    torch.complex64: 2e-5,
    torch.complex128: 1e-9,
}


def compiled(
    function: Callable[..., Any], args: Any, named: Any = None, fallback: str = "error"
) -> tuple[Compiled, list[torch.Tensor]]:
    """The graph of a call, and the tensors among its arguments."""
    leaves, form = tree_flatten((tuple(args), dict(named or {})))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[Any]:
        given = list(leaves)
        for place, t in zip(places, tensors, strict=True):
            given[place] = t
        values, options = tree_unflatten(given, form)
        return tree_flatten(function(*values, **options))[0]

    tensors = [leaves[place] for place in places]
    with torch.no_grad():
        gm = make_fx(call, decompositions(), tracing_mode="fake")(*tensors)
    gm.graph.eliminate_dead_code()
    return Compiled(gm, Options(fallback=fallback)), tensors


def check(
    function: Callable[..., Any], args: Any, named: Any = None, count: int | None = None
) -> None:
    """The operator gives what eager gives: values, shape and dtype, of all or so many results."""
    run, tensors = compiled(function, args, named)
    found = run(list(tensors))
    wanted = tree_flatten(function(*args, **dict(named or {})))[0]
    assert len(found) == len(wanted)
    for got, want in zip(found[:count], wanted[:count], strict=True):
        if isinstance(want, torch.Tensor):
            compare(got, want)


def compare(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    tolerance = TOLERANCES.get(want.dtype, 0.0)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
