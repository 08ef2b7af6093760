"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.ml_scores import (
    ML,
    both_classes,
    floats,
    labelled,
    labels,
    rows_of,
    transformed,
)  # fmt: skip
from svod.frontend.onnx.registry import Array, Tensor, operator
from svod.ir.node import UOp, largest


def _constant(values: Any, like: Tensor) -> Tensor:
    return Tensor(np.asarray(values, np.float64 if like.dtype is dt.float64 else np.float32))


def _linear(x: Tensor, coefficients: Any, intercepts: Any, rows: int) -> Tensor:
    """One score for each row of coefficients."""
    found = x @ _constant(coefficients, x).reshape(rows, -1).transpose(0, 1)
    return found + _constant(intercepts, x) if intercepts else found


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Tensor, *, coefficients: Any = None, intercepts: Any = None, targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    found = _linear(rows_of(floats(x)), coefficients, intercepts, targets)
    return transformed(found, post_transform).cast(dt.float32)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Tensor, *, coefficients: Any, intercepts: Any = None, classlabels_ints: Any = None,
    classlabels_strings: Any = None, multi_class: int = 0, post_transform: str = "NONE",
    node: NodeView,
) -> Any:  # fmt: skip
    x = rows_of(floats(x))
    rows = len(coefficients) // x.shape[1]
    names = labels(classlabels_ints or list(range(rows)), classlabels_strings)
    if classlabels_strings:
        names = labels(None, classlabels_strings)
    scores = _linear(x, coefficients, intercepts, rows)
    if rows == 1 and len(names) == 2:
        chosen = (scores[:, 0] > 0).cast(dt.int64)
        shown = both_classes(scores, post_transform, False)
    else:
        chosen, shown = scores.argmax(-1), transformed(scores, post_transform)
    return labelled(chosen, names, node), shown.cast(dt.float32)


def _kernel(x: Tensor, vectors: Tensor, kind: str, params: Any) -> Tensor:
    """The kernel of each row with each support vector."""
    gamma, coef0, degree = (params or [0.0, 0.0, 0.0])[:3]
    if kind == "RBF":
        # Squares of differences, not a product, so near vectors keep their digits.
        difference = x.unsqueeze(1) - vectors.unsqueeze(0)
        return (-gamma * difference.square().sum(-1)).exp()
    product = x @ vectors.transpose(0, 1)
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return (gamma * product + coef0) ** degree
    if kind == "SIGMOID":
        return (gamma * product + coef0).tanh()
    raise UnsupportedError(f"kernel_type {kind!r} is not supported")


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    x: Tensor, *, coefficients: Any, rho: Any, support_vectors: Any = None, n_supports: int = 0,
    one_class: int = 0, kernel_type: str = "LINEAR", kernel_params: Any = None,
    post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    x = rows_of(floats(x))
    weights = _constant(coefficients, x)
    if n_supports:
        vectors = _constant(support_vectors, x).reshape(n_supports, -1)
        found = _kernel(x, vectors, kernel_type, kernel_params) @ weights.reshape(-1, 1)
    else:
        found = _kernel(x, weights.reshape(1, -1), kernel_type, kernel_params)
    found = found + rho[0]
    if one_class:
        return svod.where(found > 0, 1.0, -1.0).cast(dt.float32)
    return transformed(found, post_transform).cast(dt.float32)


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    x: Tensor, *, coefficients: Any, rho: Any, support_vectors: Any = None,
    vectors_per_class: Any = None, prob_a: Any = None, prob_b: Any = None,
    classlabels_ints: Any = None, classlabels_strings: Any = None, kernel_type: str = "LINEAR",
    kernel_params: Any = None, post_transform: str = "NONE", node: NodeView,
) -> Any:  # fmt: skip
    x = rows_of(floats(x))
    names = labels(classlabels_ints, classlabels_strings)
    count = len(names)
    if not vectors_per_class:
        weights = _constant(coefficients, x).reshape(count, -1)
        scores = _kernel(x, weights, kernel_type, kernel_params) + rho[0]
        shown = transformed(scores, post_transform)
        return labelled(scores.argmax(-1), names, node), shown.cast(dt.float32)
    vectors = _constant(support_vectors, x).reshape(sum(vectors_per_class), -1)
    matrix = _pair_weights(np.array(coefficients), vectors_per_class)
    kernels = _kernel(x, vectors, kernel_type, kernel_params)
    pairs = kernels @ _constant(matrix, x) + _constant(rho, x)
    chosen = _votes(pairs, count).argmax(-1)
    if prob_a:
        shown = transformed(_coupled(pairs, prob_a, prob_b, count), post_transform)
    elif count == 2:
        shown = both_classes(-pairs, post_transform, False)
    else:
        shown = transformed(pairs, post_transform)
    return labelled(chosen, names, node), shown.cast(dt.float32)


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _pair_weights(coefficients: Array, per_class: list[int]) -> Array:
    """What each support vector gives to the score of each pair of classes."""
    count, total = len(per_class), sum(per_class)
    if coefficients.size != (count - 1) * total:
        raise OnnxError(f"{coefficients.size} coefficients for {total} vectors, {count} classes")
    table = coefficients.reshape(count - 1, total)
    ends = np.cumsum([0, *per_class])
    found = np.zeros((total, len(_pairs(count))))
    for column, (i, j) in enumerate(_pairs(count)):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        found[first, column] = table[j - 1, first]
        found[second, column] = table[i, second]
    return found


def _votes(pairs: Tensor, count: int) -> Tensor:
    """How many pairs each class wins."""
    wins = np.zeros((2, len(_pairs(count)), count), np.float32)
    for row, (i, j) in enumerate(_pairs(count)):
        wins[0, row, i] = wins[1, row, j] = 1
    is_first = (pairs > 0).cast(dt.float32)
    return is_first @ Tensor(wins[0]) + (1 - is_first) @ Tensor(wins[1])


def _coupled(pairs: Tensor, prob_a: Any, prob_b: Any, count: int) -> Tensor:
    """Probabilities of the classes that fit those of the pairs best, by fixed-point steps.

    The steps stop where they change little, which is part of what scikit-learn computes.
    """
    rows = pairs.shape[0]
    if isinstance(rows, UOp):  # a scan has no run-time sizes: all rows there may be
        pairs = pairs.pad([0, 0, 0, largest(rows) - rows])
        return _coupled(pairs, prob_a, prob_b, count)[:rows]
    first = (-(pairs * _constant(prob_a, pairs) + _constant(prob_b, pairs))).sigmoid()
    first = first.clamp(1e-7, 1 - 1e-7)
    place = {pair: k for k, pair in enumerate(_pairs(count))}

    def share(i: int, j: int) -> Tensor:
        return first[:, place[i, j]] if i < j else 1 - first[:, place[j, i]]

    lines = []
    for t in range(count):
        others = [u for u in range(count) if u != t]
        diagonal = reduce(lambda a, b: a + b, [share(u, t).square() for u in others])
        row = [diagonal if u == t else -share(u, t) * share(t, u) for u in range(count)]
        lines.append(svod.stack(row, dim=-1))
    matrix = svod.stack(lines, dim=1).contiguous()  # (batch, count, count)
    start = svod.full((pairs.shape[0], count), 1 / count, dtype=pairs.dtype)

    def step(p: Tensor, _: Any) -> tuple[Tensor, tuple[()]]:
        product = (matrix @ p.unsqueeze(-1)).squeeze(-1)
        total = (p * product).sum(-1, keepdim=True)
        is_done = (product - total).abs().amax(-1, keepdim=True) < 0.005 / count
        q = p
        for t in range(count):
            d = matrix[:, t, t : t + 1]
            move = (total - product[:, t : t + 1]) / d
            total = (total + move * (move * d + 2 * product[:, t : t + 1])) / (1 + move).square()
            unit = Tensor(np.eye(count, dtype=np.float32)[t]).cast(q.dtype)
            q = (q + move * unit) / (1 + move)
            product = (product + move * matrix[:, t]) / (1 + move)
        return svod.where(is_done, p, q), ()

    return svod.scan(step, start, length=max(100, count))[0]
