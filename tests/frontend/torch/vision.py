"""torchvision without its compiled operators: the names it registers shapes for are declared.

A build for another torch cannot load them; models need none of them, but the import does.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

_NAMES = re.compile(r"""(?:register_meta|register_fake)\(\s*["'](?:torchvision::)?(\w+)["']""")


def torchvision() -> Any:
    """The module, with or without its operators."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torchvision")
    text = (Path(spec.origin).parent / "_meta_registrations.py").read_text()
    for name in dict.fromkeys(_NAMES.findall(text)):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor x) -> Tensor")
    import torchvision as found

    return found
