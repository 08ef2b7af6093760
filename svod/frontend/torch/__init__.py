"""PyTorch programs on Svod: ``torch.compile(model, backend="svod")``, and exported programs.

Nothing here is imported by the rest of Svod, and torch is imported only from here.
"""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError("svod.torch needs PyTorch: pip install 'svod[torch]'", name="torch")

from svod.frontend.torch.aot import backend
from svod.frontend.torch.options import Options
from svod.frontend.torch.program import from_module, import_program
from svod.frontend.torch.report import Report, report
from svod.nn.checkpoint import load as load_checkpoint

__all__ = [
    "Options", "Report", "backend", "from_module", "import_program", "load_checkpoint", "report",
]  # fmt: skip
