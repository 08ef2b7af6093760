"""``svod.torch``: programs of PyTorch, through ``torch.compile`` or as exported programs."""

from svod.frontend.torch import Options as Options
from svod.frontend.torch import Report as Report
from svod.frontend.torch import backend as backend
from svod.frontend.torch import from_module as from_module
from svod.frontend.torch import import_program as import_program
from svod.frontend.torch import load_checkpoint as load_checkpoint
from svod.frontend.torch import report as report
from svod.reference.docstrings import describe

__all__ = [
    "Options", "Report", "backend", "from_module", "import_program", "load_checkpoint", "report",
]  # fmt: skip

describe(globals(), "svod.torch")
