"""How a plan is prepared: what the environment says, or what the caller says instead.

``PrepareConfig()`` is the default, ``PrepareConfig.from_environment()`` what the knobs say; both
are plain values. Everything that changes generated code is part of ``OptimizerConfig``, and its
fingerprint is part of the keys of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from svod.base.errors import ConfigError
from svod.base.hashing import digest
from svod.base.knobs import codegen_key, knobs
from svod.device.builtin import cpu_for
from svod.device.cpu.targets import parse_target
from svod.device.device import Device
from svod.device.names import base_key, canonical
from svod.device.registry import get_device
from svod.optimize.opts import Opt
from svod.runtime.memory import MemoryMode


class Strategy(Enum):
    """Who chooses the loops of a kernel."""

    NONE = "none"  # nobody: plain loops
    HEURISTIC = "heuristic"
    BEAM = "beam"  # a search that runs candidates


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """Everything that decides which code a kernel becomes."""

    strategy: Strategy = Strategy.HEURISTIC
    width: int = 0  # of the search; 0 takes its default
    seconds: float = 30.0  # of the search for one kernel, at most
    opts: Sequence[Opt] | Mapping[str, Sequence[Opt]] | None = None  # for all, or by kernel name

    @classmethod
    def from_environment(cls) -> OptimizerConfig:
        """What `SVOD_OPTIMIZE` and `SVOD_BEAM` say."""
        if not knobs.optimize:
            return cls(Strategy.NONE)
        return cls(Strategy.BEAM, knobs.beam) if knobs.beam else cls()

    def fingerprint(self) -> str:
        """The same text for the same configuration, in every process."""
        given = sorted(self.opts.items()) if isinstance(self.opts, Mapping) else self.opts
        opts = "" if given is None else repr(given)
        parts = (self.strategy.value, str(self.width), repr(float(self.seconds)), opts)
        return digest(*parts, codegen_key())


@dataclass(frozen=True, slots=True)
class PrepareConfig:
    """The settings of `prepare` and `realize`."""

    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    memory: MemoryMode | None = None  # None: what `SVOD_MEMORY_PLANNER` says
    disable_schedule_cache: bool = False
    device_resolver: Callable[[str], Device] = get_device
    target: str | None = None  # the machine that CPU kernels are for, where it is not this one

    @classmethod
    def from_environment(cls) -> PrepareConfig:
        """What the knobs say now."""
        return cls(OptimizerConfig.from_environment(), None, knobs.disable_schedule_cache)

    @classmethod
    def of(cls, config: PrepareConfig | OptimizerConfig | Strategy | str | None) -> PrepareConfig:
        """A configuration from whatever the caller gave: nothing, one part, or all of it."""
        if config is None:
            return cls.from_environment()
        if isinstance(config, cls):
            return config
        found = cls.from_environment()
        if isinstance(config, OptimizerConfig):
            return replace(found, optimizer=config)
        if isinstance(config, str | Strategy):
            return replace(found, optimizer=OptimizerConfig(_strategy(config)))
        raise ConfigError(f"config takes a PrepareConfig, got {type(config).__name__}: {config!r}")

    def resolve_device(self, name: str) -> Device:
        """The device of this name, as this configuration knows it."""
        if self.target is not None and base_key(canonical(name)) == "CPU":
            return cpu_for(canonical(name), self.target)
        return self.device_resolver(name)

    def for_machine(self, target: str | None) -> PrepareConfig:
        """The same for another machine; nothing can be timed there, so nothing is searched."""
        if target is None:
            return self
        parse_target(target)
        optimizer = self.optimizer
        if optimizer.strategy is Strategy.BEAM:
            optimizer = replace(optimizer, strategy=Strategy.HEURISTIC)
        return replace(self, optimizer=optimizer, target=target)

    def here(self) -> PrepareConfig:
        """The same for what is computed now, on this machine."""
        return self if self.target is None else replace(self, target=None)


def _strategy(given: Any) -> Strategy:
    try:
        return Strategy(given)
    except ValueError:
        names = ", ".join(s.value for s in Strategy)
        raise ConfigError(f"there is no optimizer strategy {given!r}: use one of {names}") from None
