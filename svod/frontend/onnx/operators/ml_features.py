"""Features of ai.onnx.ml: scaling, missing values, categories, dictionaries.

Texts and dictionaries are on the host. Keys that are numbers are looked up on the device: they are
sorted here, and a search finds the place of each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView, describe
from svod.frontend.onnx.operators.ml_scores import ML, rows_of
from svod.frontend.onnx.registry import Array, Host, Tensor, Value, operator
from svod.frontend.onnx.types import CARRIERS


@operator("Scaler", domain=ML)
def scaler(x: Tensor, *, offset: Any = None, scale: Any = None) -> Tensor:
    kind = np.float64 if x.dtype is dt.float64 else np.float32
    found = x.cast(dt.float64 if kind is np.float64 else dt.float32)
    if offset:
        found = found - Tensor(np.array(offset, kind))
    return (found * Tensor(np.array(scale, kind)) if scale else found).cast(dt.float32)


@operator("Normalizer", domain=ML)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    wide = rows_of(x.cast(dt.float32))
    if norm == "MAX":
        size = wide.amax(-1, keepdim=True)
    elif norm == "L1":
        size = wide.abs().sum(-1, keepdim=True)
    elif norm == "L2":
        size = wide.square().sum(-1, keepdim=True).sqrt()
    else:
        raise OnnxError(f"norm {norm!r} is none of MAX, L1, L2")
    return (wide / svod.where(size == 0, 1.0, size)).reshape(x.shape)


@operator("Binarizer", domain=ML)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


@operator("Imputer", domain=ML)
def imputer(
    x: Tensor, *, imputed_value_floats: Any = None, imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    is_whole = x.dtype.is_int
    values = imputed_value_int64s if is_whole else imputed_value_floats
    if not values:
        raise OnnxError(f"imputed values for {x.dtype} are missing")
    wanted = replaced_value_int64 if is_whole else replaced_value_float
    is_gone = x.isnan() if wanted != wanted else x == wanted
    fill = Tensor(np.array(values, CARRIERS[x.dtype]))
    return svod.where(is_gone, fill if len(values) > 1 else fill.reshape(()), x)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Value, places: Value, *, node: NodeView) -> Value:
    if isinstance(x, np.ndarray) and x.dtype == object:
        flat = node.importer.host(places, "", describe(node.proto)).reshape(-1)
        return x[..., flat] if x.ndim > 1 else x[flat].reshape(1, -1)
    x, chosen = node.tensor(x), node.tensor(places).reshape(-1)
    return x[(slice(None),) * (x.ndim - 1) + (chosen,)].reshape(*(x.shape[:-1] or (1,)), -1)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*xs: Tensor, inputdimensions: Any = None) -> Tensor:
    """Features beside each other, each cut or filled with zeros to its width."""
    parts = []
    for i, x in enumerate(xs):
        x = x.cast(dt.float32)
        x = x.reshape(-1, 1) if x.ndim == 1 else x.reshape(x.shape[0], -1)
        width = inputdimensions[i] if inputdimensions else x.shape[1]
        parts.append(x[:, :width].pad([0, max(width - x.shape[1], 0)]))
    return svod.concat(parts, axis=1)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Value, *, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1, node: NodeView
) -> Value:
    if cats_strings:
        if not isinstance(x, np.ndarray) or x.dtype != object:
            raise OnnxError("the categories are texts, the input is not")
        hit: Any = x[..., None] == np.array(cats_strings, object)
        found = np.asarray(hit, np.float32)
        if not zeros and not found.any(-1).all():
            raise OnnxError("OneHotEncoder: a value is none of the categories")
        return found
    values = node.tensor(x)
    if values.dtype.is_float:
        values = values.cast(dt.int64)
    hits = values.unsqueeze(-1) == Tensor(np.array(cats_int64s, np.int64))
    return hits.cast(dt.float32)


_LABEL_KINDS = {"int64s": np.int64, "floats": np.float32, "strings": object}


def _given(values: dict[str, Any], what: str) -> Array:
    """Keys or values of a mapping, from whichever attribute has them."""
    tensor = values[f"{what}_tensor"]
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    for name, kind in _LABEL_KINDS.items():
        if values[f"{what}_{name}"]:
            return np.array(values[f"{what}_{name}"], kind)
    raise OnnxError(f"LabelEncoder has no {what}")


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(
    x: Value, *, keys_int64s: Any = None, keys_floats: Any = None, keys_strings: Any = None,
    keys_tensor: Any = None, values_int64s: Any = None, values_floats: Any = None,
    values_strings: Any = None, values_tensor: Any = None, default_int64: int = -1,
    default_float: float = -0.0, default_string: str = "_Unused", default_tensor: Any = None,
    node: NodeView,
) -> Value:  # fmt: skip
    given = dict(locals())
    keys, values = _given(given, "keys"), _given(given, "values")
    if len(keys) != len(values):
        raise OnnxError(f"LabelEncoder has {len(keys)} keys and {len(values)} values")
    default: Any = default_int64 if values.dtype.kind in "iu" else default_float
    default = default_string if values.dtype == object else default
    default = default if default_tensor is None else np.asarray(default_tensor).reshape(-1)[0]
    return mapped(x, keys, values, default, node)


@operator("LabelEncoder", domain=ML)
def label_encoder_of_texts(
    x: Value, *, classes_strings: Any, default_int64: int = -1, default_string: str = "_Unused",
    node: NodeView,
) -> Value:  # fmt: skip
    return category_mapper(
        x, cats_strings=classes_strings, cats_int64s=list(range(len(classes_strings))),
        default_int64=default_int64, default_string=default_string, node=node,
    )  # fmt: skip


@operator("CategoryMapper", domain=ML)
def category_mapper(
    x: Value, *, cats_int64s: Any = None, cats_strings: Any = None, default_int64: int = -1,
    default_string: str = "_Unused", node: NodeView,
) -> Value:  # fmt: skip
    whole, texts = np.array(cats_int64s, np.int64), np.array(cats_strings, object)
    if isinstance(x, np.ndarray) and x.dtype == object:
        return mapped(x, texts, whole, default_int64, node)
    return mapped(x, whole, texts, default_string, node)


def mapped(x: Value, keys: Array, values: Array, default: Any, node: NodeView) -> Value:
    """Each element's value in a mapping; on the host where texts come in or go out."""
    is_text = object in (keys.dtype, values.dtype)
    if is_text:
        why = f"{describe(node.proto)}, which maps texts,"
        array = node.importer.host(x, "", why)
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        if keys.dtype.kind == "f" and np.isnan(keys).any():
            nan = values[np.flatnonzero(np.isnan(keys))[0]]
            flat = [nan if v != v else table.get(v, default) for v in array.reshape(-1).tolist()]
        else:
            flat = [table.get(v, default) for v in array.reshape(-1).tolist()]
        found = np.empty(len(flat), values.dtype)
        found[:] = flat
        return found.reshape(array.shape)
    x = node.tensor(x)
    fill = Tensor(np.array(default, values.dtype))
    order = np.argsort(keys, kind="stable")  # NaN goes last
    keys, values = keys[order], values[order]
    missing = (
        Tensor(values[-1:]).reshape(())
        if keys.dtype.kind == "f" and keys[-1:] != keys[-1:]
        else None
    )
    if missing is not None:
        keys, values = keys[:-1], values[:-1]
    if not len(keys):
        found = fill.expand(*x.shape)
    else:
        sorted_ = Tensor(keys)
        wanted = x.cast(sorted_.dtype)
        place = svod.searchsorted(sorted_, wanted).clamp(0, len(keys) - 1)
        found = svod.where(sorted_[place] == wanted, Tensor(values)[place], fill)
    return found if missing is None else svod.where(x.isnan(), missing, found)


@operator("ZipMap", domain=ML)
def zip_map(x: Host, *, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> Value:
    names = list(classlabels_strings or classlabels_int64s)
    return [dict(zip(names, row, strict=True)) for row in x]


@operator("DictVectorizer", domain=ML)
def dict_vectorizer(
    x: Value, *, int64_vocabulary: Any = None, string_vocabulary: Any = None
) -> Value:
    rows = x if isinstance(x, list) else [x]
    words = string_vocabulary or int64_vocabulary
    values = [[np.asarray(row.get(w, 0)) for w in words] for row in rows]
    kind = next((v.dtype for row in rows for v in map(np.asarray, row.values())), np.float32)
    found = np.array([[v.item() for v in row] for row in values], kind)
    return found if isinstance(x, list) else found.reshape(-1)


_CAST = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}


@operator("CastMap", domain=ML)
def cast_map(
    x: Value, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    entries = {int(k): v for k, v in x.items()}
    kind = _CAST[cast_to]
    if map_form == "DENSE":
        chosen = [entries[k] for k in sorted(entries)]
    else:
        chosen = [entries.get(k, 0) for k in range(max_map)]
    chosen = [str(v) for v in chosen] if kind is object else chosen
    return np.array(chosen, kind).reshape(1, -1)
