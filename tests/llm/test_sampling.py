"""How tokens are drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from svod.llm import RequestError, Sampling
from svod.llm.sampling import Sampler, repeated

SCORES = np.log(np.array([0.4, 0.3, 0.2, 0.06, 0.04], np.float32))


def shares(count: int = 4000, tokens: tuple[int, ...] = (), **options: float) -> np.ndarray:
    sampler = Sampler(Sampling(**{"temperature": 1.0, "seed": 1, **options}))  # type: ignore[arg-type]
    drawn = Counter(sampler.draw(SCORES, tokens).token for _ in range(count))
    return np.array([drawn[n] / count for n in range(5)])


def test_tokens_come_as_often_as_their_probability_says() -> None:
    assert np.abs(shares() - np.exp(SCORES)).max() < 0.03


def test_a_seed_gives_the_same_again() -> None:
    draws = []
    for seed in (7, 7, 8):
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        draws.append([sampler.draw(SCORES, ()).token for _ in range(50)])
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(
    "options, kept",
    [
        ({"top_k": 2}, 2), ({"top_p": 0.65}, 2), ({"top_p": 0.001}, 1), ({"min_p": 0.2}, 3),
        ({"top_k": 3, "min_p": 0.6}, 2), ({"temperature": 0.0}, 1),
    ],
)  # fmt: skip
def test_cuts_leave_the_likeliest(options: dict[str, float], kept: int) -> None:
    found = shares(800, **options)
    assert (found[:kept] > 0).all() and (found[kept:] == 0).all()


def test_xtc_leaves_out_the_likeliest_but_for_the_last_of_them() -> None:
    found = shares(800, xtc_probability=1.0, xtc_threshold=0.15)
    assert (found[:2] == 0).all() and (found[2:] > 0).all()
    assert (shares(800, xtc_probability=0.0, xtc_threshold=0.15)[:2] > 0).all()


def test_penalties_make_what_was_said_less_likely() -> None:
    for options in (
        {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 3.0},
    ):  # fmt: skip
        assert shares(800, (0,), **options)[0] < 0.25
    assert shares(800, (), logit_bias={0: -100.0})[0] == 0  # type: ignore[arg-type]


def test_dry_counts_how_long_a_repetition_is() -> None:
    assert repeated([1, 2, 3, 9, 1, 2, 3]) == {9: 3}
    assert repeated([5, 5, 5]) == {5: 2}
    assert repeated([]) == {}
    tokens = (0, 1, 2, 0, 1)
    assert shares(400, tokens, dry_multiplier=50.0)[2] == 0
    assert shares(400, tokens, dry_multiplier=50.0, dry_allowed=3)[2] > 0


def test_probabilities_are_those_of_the_model() -> None:
    sampler = Sampler(Sampling(temperature=0.1, top_k=1, logprobs=3, logit_bias={4: 50.0}))
    step = sampler.draw(SCORES, ())
    assert step.token == 4 and step.logprob == pytest.approx(np.log(0.04), abs=1e-5)
    assert [token for token, _ in step.likeliest] == [0, 1, 2]


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"logprobs": 21}, {"seed": -1},
     {"temperature": float("nan")}, {"logit_bias": {1: float("inf")}}],
)  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(RequestError, match="sampling cannot be"):
        Sampling(**options)  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_are_an_error() -> None:
    with pytest.raises(RequestError, match="no numbers"):
        Sampler(Sampling()).draw(np.array([1.0, np.nan], np.float32), ())
