"""What ``torch.compile(..., backend="svod", options={...})`` may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from svod.base.errors import ConfigError
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one compiled function."""

    threads: int | None = None  # of the whole process, as svod.set_threads; None leaves them
    freeze: bool = False  # parameters and buffers of inference are constants, packed once
    beam: int = 0  # width of the search for loops; 0 takes the heuristics
    fallback: str = "warn"  # what an unknown operator is: "warn" runs it in torch, "error" refuses

    def __post_init__(self) -> None:
        if self.threads is not None and not _is_count(self.threads):
            raise ConfigError(f"option threads is a whole number, not {self.threads!r}")
        if not isinstance(self.freeze, bool):
            raise ConfigError(f"option freeze is True or False, not {self.freeze!r}")
        if not _is_count(self.beam):
            raise ConfigError(f"option beam is a width, not {self.beam!r}")
        if self.fallback not in ("warn", "error"):
            raise ConfigError(f'option fallback is "warn" or "error", not {self.fallback!r}')

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Options from a dict; a key that is none of them is refused."""
        known = [f.name for f in fields(cls)]
        odd = sorted(str(key) for key in given or {} if key not in known)
        if odd:
            raise ConfigError(f"there is no option {odd[0]!r}: use {', '.join(known)}")
        return cls(**dict(given or {}))

    @property
    def config(self) -> PrepareConfig:
        """How plans are prepared."""
        found = PrepareConfig.from_environment()
        if not self.beam:
            return found
        return PrepareConfig.of(OptimizerConfig(Strategy.BEAM, self.beam))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
