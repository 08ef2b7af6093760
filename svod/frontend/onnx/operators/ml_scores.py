"""What classifiers and regressors of ai.onnx.ml share: transforms of scores, and labels."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView, describe
from svod.frontend.onnx.registry import Array, Tensor, Value

ML = "ai.onnx.ml"


def transformed(scores: Tensor, name: str) -> Tensor:
    """Scores of the classes, along the last axis, after a `post_transform`."""
    if name in ("NONE", ""):
        return scores
    if name == "LOGISTIC":
        return scores.sigmoid()
    if name == "SOFTMAX":
        return scores.softmax(-1)
    if name == "PROBIT":
        return (2 * scores - 1).erfinv() * sqrt(2.0)
    if name != "SOFTMAX_ZERO":
        raise UnsupportedError(f"post_transform {name!r} is not supported")
    # A softmax of what is not zero; zeros stay.
    is_some = scores.abs() > 1e-7
    powers = svod.where(is_some, (scores - scores.amax(-1, keepdim=True)).exp(), 0.0)
    total = powers.sum(-1, keepdim=True)
    return powers / svod.where(total == 0, 1.0, total)


def both_classes(score: Tensor, name: str, is_share: bool) -> Tensor:
    """Two scores from the one of the second class, a share of 1 or a distance from 0."""
    if name == "PROBIT":
        return transformed(score, name)
    if is_share:
        return svod.concat([1 - score, score], axis=-1)
    return transformed(svod.concat([-score, score], axis=-1), name)


def labels(whole: Any, texts: Any) -> Array:
    """The labels of classes, from the two attributes that may give them."""
    if whole:
        return np.array(whole, np.int64)
    if texts:
        return np.array(texts, object)
    raise OnnxError("a classifier without labels")


def labelled(index: Tensor, names: Array, node: NodeView) -> Value:
    """The label of the class at an index: texts are looked up on the host."""
    if names.dtype != object:
        if np.array_equal(names, np.arange(len(names))):
            return index.cast(dt.int64)
        return Tensor(names, device=node.device)[index]
    why = f"{describe(node.proto)}, whose labels are texts,"
    return names[node.importer.host(index, "", why)]


def floats(x: Tensor) -> Tensor:
    """Features as floats: double stays, all else is float32."""
    return x if x.dtype is dt.float64 else x.cast(dt.float32)


def rows_of(x: Tensor) -> Tensor:
    """Features as a matrix: one row where there is one axis."""
    return x.reshape(1, -1) if x.ndim == 1 else x
