"""The loops of kernels: a user's list of opts, the tuned store, the heuristics, or a search.

In: kernel bodies, the machine, a configuration. Out: the loops each of them runs as. A user's list
comes first. The tuned store is asked where something may be chosen, and an entry that does not fit
is no entry. What a search needs is loaded only where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.codegen.choice import Chosen, explicit_loops, heuristic_loops
from svod.codegen.targets.cpu import plain_loops
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime.config import OptimizerConfig, Strategy
from svod.runtime.tuning import tuning_identity
from svod.schedule.sorts import is_sort

if TYPE_CHECKING:
    from svod.optimize.beam import BeamConfig

Values = Mapping[UOp, Mapping[str, int]]  # of variables that a schedule fixes, by body
DEFAULT_WIDTH = 4  # of a search that was asked for without a width


def chosen_loops(
    bodies: Sequence[UOp], machine: Machine, config: OptimizerConfig, values: Values | None = None
) -> list[Chosen]:
    """The loops of each body."""
    found = {body: _without_search(body, machine, config) for body in dict.fromkeys(bodies)}
    waiting = [body for body, loops in found.items() if loops is None]
    if waiting:
        from svod.runtime.search import searched_loops

        found.update(searched_loops(waiting, machine, search_limits(config), values))
    return [_known(found[body]) for body in bodies]


def known_loops(body: UOp, machine: Machine, config: OptimizerConfig) -> Chosen:
    """The loops of a body, without a search where there has been none yet."""
    return _without_search(body, machine, config) or heuristic_loops(body, machine)


def search_width(config: OptimizerConfig) -> int:
    """How many candidates a search keeps."""
    return config.width or DEFAULT_WIDTH


def search_limits(config: OptimizerConfig) -> BeamConfig:
    """What the configuration and the environment allow a search."""
    from svod.optimize.beam import BeamConfig

    return BeamConfig.from_environment(search_width(config), config.seconds)


def tuned_loops(body: UOp, machine: Machine, width: int = 0) -> Chosen | None:
    """The loops the tuned store knows for a kernel, from a search at least this wide."""
    if not knobs.tuned:
        return None
    from svod.codegen.naming import kernel_name
    from svod.optimize.actions import OptimizeError
    from svod.optimize.tuned import tuned_store

    entry = tuned_store().get(body.content_hash, tuning_identity(machine))
    if entry is None or entry.width < width:
        return None
    if entry.is_heuristic:
        return heuristic_loops(body, machine)
    try:
        return Chosen(explicit_loops(body, entry.opts, machine), entry.opts, "tuned")
    except OptimizeError as problem:
        debug(1, f"tuned store: the entry of {kernel_name(body)} is not used: {problem}")
        return None


def _without_search(body: UOp, machine: Machine, config: OptimizerConfig) -> Chosen | None:
    """The loops of a body; None where they have to be searched for."""
    if is_sort(body):
        return heuristic_loops(body, machine)
    opts = _given(body, config)
    if opts is not None:
        return Chosen(explicit_loops(body, opts, machine), tuple(opts), "given")
    if config.strategy is Strategy.NONE or not knobs.optimize:
        return Chosen(plain_loops(body, machine), (), "nobody")
    if config.strategy is Strategy.BEAM:
        return tuned_loops(body, machine, search_width(config))
    return tuned_loops(body, machine) or heuristic_loops(body, machine)


def _given(body: UOp, config: OptimizerConfig) -> Sequence[Opt] | None:
    if not isinstance(config.opts, Mapping):
        return config.opts
    from svod.codegen.naming import kernel_name

    return config.opts.get(kernel_name(body))


def _known(found: Chosen | None) -> Chosen:
    assert found is not None
    return found
