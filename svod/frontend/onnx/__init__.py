"""ONNX models: `svod.onnx.load("model.onnx")`."""

from svod.base.errors import UnsupportedError
from svod.frontend.onnx import backend
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.exporting import export
from svod.frontend.onnx.model import Model, load
from svod.frontend.onnx.ortvalue import OrtValue
from svod.frontend.onnx.registry import Host, Value, host, operator, texts
from svod.frontend.onnx.session import (
    ExecutionMode,
    GraphOptimizationLevel,
    InferenceSession,
    IOBinding,
    RunOptions,
    SessionOptions,
    get_available_providers,
    get_device,
)

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "Host",
    "IOBinding",
    "InferenceSession",
    "Model",
    "OnnxError",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "UnsupportedError",
    "Value",
    "backend",
    "export",
    "get_available_providers",
    "get_device",
    "host",
    "load",
    "operator",
    "texts",
]
