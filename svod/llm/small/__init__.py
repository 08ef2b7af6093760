"""The model that ships: small, trained by `train` on what `talk` makes up, read by everything."""

from svod.llm.small.place import small_model

__all__ = ["small_model"]
