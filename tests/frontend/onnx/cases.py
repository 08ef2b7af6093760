"""The cases of ONNX's backend suite, and what running one of them gives."""

from __future__ import annotations

import functools
import os
import re
import warnings
from typing import Any

import numpy as np

import svod
from tests.frontend.onnx.excluded import tolerance


@functools.cache
def cases(kind: str) -> list[Any]:
    """All cases of a kind, models in memory."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind=kind))


def outcome(case: Any) -> str:
    """What is wrong with the results of a case; nothing where they are right."""
    try:
        check(case)
    except Exception as error:  # whatever a case raises is its outcome
        text = re.sub(r"\s+", " ", str(error)).strip()
        return f"{type(error).__name__}: {text}"
    return ""


def check(case: Any) -> None:
    """Run a case and compare."""
    source, sets = _content(case)
    model = svod.onnx.load(source)
    for inputs, outputs in sets:
        names = [i.name for i in model.inputs]
        values = [_array(v) for v in inputs]
        found = model.run(dict(zip(names, values, strict=False)))
        for value, wanted in zip(found, outputs, strict=True):
            rtol = tolerance(case.name, case.rtol)
            compare(value, _array(wanted), rtol, case.atol)


def _array(value: Any) -> Any:
    """Some cases hold messages of protobuf in place of arrays."""
    if isinstance(value, (list, tuple)):
        return [_array(v) for v in value]
    if hasattr(value, "data_type") and hasattr(value, "raw_data"):
        import onnx

        return onnx.numpy_helper.to_array(value)
    return value


def compare(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    if isinstance(wanted, (list, tuple)):
        assert isinstance(found, (list, tuple)) and len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            compare(a, b, rtol, atol)
        return
    if wanted is None:
        assert found is None
        return
    wanted, found = np.asarray(wanted), np.asarray(found)
    assert found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        assert found.tolist() == wanted.tolist()
        return
    assert found.dtype == wanted.dtype, f"{found.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind == "V" or wanted.dtype.name.startswith(("float8", "float4", "bfloat")):
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    elif wanted.dtype.name in ("int4", "uint4", "int2", "uint2"):
        found, wanted = found.astype(np.int32), wanted.astype(np.int32)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def _content(case: Any) -> tuple[Any, list[Any]]:
    if case.model is not None and case.data_sets is not None:
        return case.model.SerializeToString(), case.data_sets
    import onnx

    path = os.path.join(case.model_dir, "model.onnx")
    sets = []
    number = 0
    while os.path.isdir(folder := os.path.join(case.model_dir, f"test_data_set_{number}")):
        sets.append((_protos(onnx, folder, "input"), _protos(onnx, folder, "output")))
        number += 1
    return path, sets


def _protos(onnx: Any, folder: str, what: str) -> list[Any]:
    found = []
    while os.path.exists(path := os.path.join(folder, f"{what}_{len(found)}.pb")):
        proto = onnx.TensorProto()
        with open(path, "rb") as file:
            proto.ParseFromString(file.read())
        found.append(onnx.numpy_helper.to_array(proto))
    return found
