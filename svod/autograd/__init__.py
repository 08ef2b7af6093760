"""``svod.autograd``: gradients under torch's names.

``grad`` and ``backward`` differentiate tensors that were computed, ``Function`` has a backward of
its own, ``functional`` differentiates functions, ``gradcheck`` compares with finite differences.
"""

from svod.autograd import functional as functional
from svod.autograd.checks import GradcheckError as GradcheckError
from svod.autograd.checks import gradcheck as gradcheck
from svod.autograd.checks import gradgradcheck as gradgradcheck
from svod.autograd.function import Function as Function
from svod.autograd.function import once_differentiable as once_differentiable
from svod.autograd.tensors import backward as backward
from svod.autograd.tensors import grad as grad
from svod.reference.docstrings import describe
from svod.tensor.gradients.autograd import GradientError as GradientError
from svod.tensor.gradients.grad_modes import enable_grad as enable_grad
from svod.tensor.gradients.grad_modes import inference_mode as inference_mode
from svod.tensor.gradients.grad_modes import is_grad_enabled as is_grad_enabled
from svod.tensor.gradients.grad_modes import no_grad as no_grad
from svod.tensor.gradients.grad_modes import set_grad_enabled as set_grad_enabled

__all__ = [
    "Function", "GradcheckError", "GradientError", "backward", "enable_grad", "functional",
    "grad", "gradcheck", "gradgradcheck", "inference_mode", "is_grad_enabled", "no_grad",
    "once_differentiable", "set_grad_enabled",
]  # fmt: skip

describe(globals(), "svod.autograd")
