"""``svod.onnx``: ONNX models, and onnxruntime's names for programs that change one import."""

from svod.frontend.onnx import *  # noqa: F403
from svod.frontend.onnx import __all__ as __all__
from svod.reference.docstrings import describe

describe(globals(), "svod.onnx")
