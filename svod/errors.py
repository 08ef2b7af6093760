"""``svod.errors``: what Svod raises; `SvodError` is the base of all."""

from svod.base.errors import *  # noqa: F403
