"""PyTorch programs on Svod: ``torch.compile(model, backend="svod")``, and exported programs.

Nothing here is imported by the rest of Svod, and torch is imported only from here.
"""

from svod.frontend.torch.aot import backend
from svod.frontend.torch.options import Options
from svod.frontend.torch.program import from_module, import_program
from svod.frontend.torch.report import Report, report
from svod.nn.checkpoint import load as load_checkpoint

__all__ = [
    "Options", "Report", "backend", "from_module", "import_program", "load_checkpoint", "report",
]  # fmt: skip
