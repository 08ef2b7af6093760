"""Random networks compile as their loops were chosen and give what the definitions of ops give."""

from __future__ import annotations

import pytest

from tests.fuzz.check import compiling
from tests.fuzz.networks import Network, network_failure

BLOCK = 15
NETWORKS = 60
OTHERS = 8  # of other machines, each
# Ways in which the loops of networks once failed: the seeds of networks that showed it.
SEEN = {"default": (272, 345, 642, 915, 3231, 3809), "threads": (5110, 5568, 6066, 6075)}


def _check(seeds: tuple[int, ...] | range) -> None:
    for seed in seeds:
        wrong = network_failure(seed)
        if wrong is not None:
            network = Network(seed)
            network.outputs()
            pytest.fail(f"network {seed}: {wrong}\n" + "\n".join(network.lines))


@pytest.mark.parametrize("first", range(0, NETWORKS, BLOCK))
def test_random_networks_agree_with_the_definitions_of_their_ops(first: int) -> None:
    _check(range(first, first + BLOCK))


@pytest.mark.parametrize("way", ["threads", "many", "narrow"])
def test_random_networks_agree_on_other_machines(way: str) -> None:
    with compiling(way):
        _check(range(NETWORKS, NETWORKS + OTHERS))


@pytest.mark.parametrize("way", SEEN)
def test_networks_that_failed_once(way: str) -> None:
    with compiling(way):
        _check(SEEN[way])
