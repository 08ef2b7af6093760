"""``svod.onnx``: ONNX models, and onnxruntime's names for programs that change one import."""

from svod.frontend.onnx import *  # noqa: F403
from svod.frontend.onnx import __all__ as __all__
