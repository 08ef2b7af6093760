"""Svod as one more framework of the shared benchmark harness.

Named by BENCH_ADAPTER; the harness provides the module `peers` with the base class, and cases
written over the operators below. Other frameworks' processes read this file too, so svod itself
is imported only when a case is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from peers import Adapter  # type: ignore[import-not-found]

EPSILON = 1e-5


class Operators:
    """What cases call beyond the methods of their tensors."""

    @staticmethod
    def sum(x: Any, axis: int | None) -> Any:
        return x.sum(axis)

    @staticmethod
    def mean(x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    @staticmethod
    def cat(xs: Sequence[Any], axis: int) -> Any:
        return xs[0].cat(*xs[1:], dim=axis)

    @staticmethod
    def take(table: Any, ids: Any) -> Any:
        return table[ids]

    @staticmethod
    def transpose(x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    @staticmethod
    def relu(x: Any) -> Any:
        return x.relu()

    @staticmethod
    def silu(x: Any) -> Any:
        return x.silu()

    @staticmethod
    def gelu(x: Any) -> Any:
        return x.gelu(approximate="tanh")

    @staticmethod
    def softmax(x: Any) -> Any:
        return x.softmax(-1)

    @staticmethod
    def layernorm(x: Any, weight: Any, bias: Any) -> Any:
        return x.layer_norm(x.shape[-1], weight, bias, EPSILON)

    @staticmethod
    def rmsnorm(x: Any, weight: Any) -> Any:
        return x.rms_norm(x.shape[-1], weight, EPSILON)

    @staticmethod
    def linear(x: Any, weight: Any, bias: Any | None) -> Any:
        return x.linear(weight, bias)

    @staticmethod
    def conv2d(x: Any, weight: Any, stride: int, padding: int, groups: int) -> Any:
        return x.conv2d(weight, None, stride, padding, 1, groups)

    @staticmethod
    def batchnorm(x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        return x.batch_norm(mean, variance, scale, shift, eps=EPSILON)

    @staticmethod
    def maxpool(x: Any, size: int, stride: int, padding: int) -> Any:
        return x.max_pool2d(size, stride, padding)

    @staticmethod
    def sdpa(query: Any, key: Any, value: Any, causal: bool) -> Any:
        return query.scaled_dot_product_attention(key, value, is_causal=causal)

    @staticmethod
    def cross_entropy(logits: Any, classes: Any) -> Any:
        return logits.cross_entropy(classes)


class Svod(Adapter):  # type: ignore[misc]
    """A case becomes one plan, which is executed once per call."""

    name, module, dists = "svod", "svod", ("svod", "numpy", "llvmlite", "ml_dtypes")
    env = {"SVOD_THREADS": "THREADS", "SVOD_CACHE_DIR": "COLD"}  # filled in by the harness
    hello = "import svod; print((svod.Tensor([1., 2., 3.]) + svod.Tensor([4., 5., 6.])).tolist())"

    def build(self, case: Any) -> Callable[[], tuple[Any, ...]]:
        """The prepared case; a call runs it and gives the output tensors."""
        if case.lr is not None:
            raise NotImplementedError("training cases are measured by svod.tools.bench")
        import svod

        weights = {name: svod.Tensor(array) for name, array in case.params.items()}
        inputs = [svod.Tensor(array) for array in case.inputs]
        made = case.fn(Operators, weights, *inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        plan = outputs[0].prepare(*outputs[1:], inputs=inputs, freeze=bool(weights))

        def run() -> tuple[Any, ...]:
            plan.execute()
            return outputs

        return run

    def numpy(self, out: tuple[Any, ...]) -> list[Any]:
        """The outputs as arrays."""
        return [tensor.numpy() for tensor in out]
