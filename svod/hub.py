"""``svod.hub``: model folders of Hugging Face from disk."""

from svod.frontend.hub import HubError as HubError
from svod.frontend.hub import HubModel as HubModel
from svod.frontend.hub import load as load
from svod.reference.docstrings import describe

__all__ = ["HubError", "HubModel", "load"]

describe(globals(), "svod.hub")
