"""Requests that are served together: the same answers as alone, shared beginnings, ends."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest

import svod
from svod.llm import RequestError, Sampling
from svod.llm.engine import Engine, guess
from svod.llm.paged import PAGE, PagePool

SLOTS = 3
Answer = list[tuple[int, float]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    found = svod.llm.load(slots=SLOTS, context=256).engine
    found.prepare()
    return found


def prompts(count: int) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(6, 500, n).tolist() for n in random.integers(2, 150, count)]


def answer(engine: Engine, prompt: list[int], seed: int, count: int = 24) -> Answer:
    sampling = Sampling(temperature=1.0, seed=seed)
    return [(s.token, s.logprob) for s in engine.generate(prompt, sampling, count)]


def test_answers_do_not_depend_on_who_else_is_served(engine: Engine) -> None:
    given = prompts(7)
    plans = engine.plans
    alone = [answer(engine, prompt, seed) for seed, prompt in enumerate(given)]
    together: list[Answer] = [[] for _ in given]

    def run(number: int) -> None:
        together[number] = answer(engine, given[number], number)

    threads = [Thread(target=run, args=(n,)) for n in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    assert engine.plans == plans == 2
    engine.step()
    assert engine.pool.used == 0 and not engine.active


def test_a_prompt_starts_after_what_it_shares_with_an_earlier_one(engine: Engine) -> None:
    given = prompts(1)[0] + list(range(6, 90))
    first = answer(engine, given, 1)
    taken: list[Any] = []
    request = engine.submit(given, lambda step: bool(taken.append(step)), Sampling(seed=1), 4)
    engine.step()
    assert request.shared_length == (len(given) - 1) // PAGE * PAGE
    request.cancel()
    assert answer(engine, given, 1) == first
    other = [*given[:40], 7, *given[41:]]
    request = engine.submit(other, lambda step: False, Sampling(seed=1), 4)
    engine.step()
    assert request.shared_length == 32
    request.cancel()
    engine.step()


def test_a_cancelled_request_frees_its_slot_within_a_step(engine: Engine) -> None:
    running = [engine.submit([9, 10, n], lambda step: False, Sampling(seed=0)) for n in range(3)]
    last = engine.submit([9, 10, 11], lambda step: False, Sampling(seed=0), 3)
    for _ in range(5):
        engine.step()
    assert len(engine.active) == SLOTS and not last.computed
    running[1].cancel()
    engine.step()
    assert last in engine.active and running[1] not in engine.active and running[1].is_done
    for request in running:
        request.cancel()
    while engine.step():
        pass
    assert last.is_done and engine.pool.used == 0


def test_what_goes_wrong_with_a_request_is_its_own(engine: Engine) -> None:
    good = answer(engine, [9, 10, 11], 3, 12)
    bad = engine.generate([9, 10], Sampling(logit_bias={10_000: 1.0}))
    steps = engine.generate([9, 10, 11], Sampling(temperature=1.0, seed=3), 12)
    found = [next(steps)]
    with pytest.raises(RequestError, match="not in the vocabulary"):
        list(bad)
    assert [(s.token, s.logprob) for s in [*found, *steps]] == good


def test_likeliest_tokens_are_told_with_their_probabilities(engine: Engine) -> None:
    (step,) = engine.generate([9, 10], Sampling(temperature=0.0, logprobs=5), 1)
    assert step.likeliest[0] == (step.token, step.logprob)
    assert [p for _, p in step.likeliest] == sorted((p for _, p in step.likeliest), reverse=True)


def test_embeddings_have_length_1_and_leave_no_pages(engine: Engine) -> None:
    vectors = [engine.embedding(p) for p in ([9, 10, 11], [9, 10, 11], list(range(6, 106)))]
    assert np.allclose([float(v @ v) for v in vectors], 1, atol=1e-5)
    assert (vectors[0] == vectors[1]).all() and abs(vectors[0] @ vectors[2]) < 0.999
    assert engine.pool.used == 0


@pytest.mark.long
def test_guessed_tokens_change_nothing_but_the_number_of_runs() -> None:
    plain = svod.llm.load(context=256).engine
    guessing = svod.llm.load(context=256, guesses=5).engine
    prompt = [10, 11, 12, 13, 14] * 8
    for sampling in (Sampling(temperature=0.0), Sampling(temperature=0.7, seed=4)):
        tokens = [[s.token for s in e.generate(prompt, sampling, 60)] for e in (plain, guessing)]
        assert tokens[0] == tokens[1]
    assert guessing.plans == 3


def test_guesses_are_what_followed_last_time() -> None:
    assert guess([1, 2, 3, 4, 5, 1, 2, 3], 2) == [4, 5]
    assert guess([1, 2, 3, 4, 5, 9, 2, 3], 2) == []
    assert guess([1, 2, 3], 4) == []


def test_pages_are_never_given_twice() -> None:
    random = np.random.default_rng(3)
    pool = PagePool(40)
    owned: list[tuple[list[int], list[int]]] = []
    texts = [random.integers(0, 3, 8 * PAGE).tolist() for _ in range(4)]
    for _ in range(600):
        if owned and (len(owned) > 3 or random.random() < 0.4):
            pool.release(owned.pop(int(random.integers(len(owned))))[1])
            continue
        length = int(random.integers(1, 8 * PAGE))
        text = texts[int(random.integers(4))][:length]
        pages = pool.shared(text)
        assert len(pages) <= (length - 1) // PAGE
        name = pool.name_of(pages[-1]) if pages else 0
        for page in range(len(pages), -(-length // PAGE)):
            pages.append(pool.take())
            content = text[page * PAGE : (page + 1) * PAGE]
            if len(content) == PAGE:
                name = pool.name(name, content, pages[-1])
        owned.append((text, pages))
        seen: dict[int, list[int]] = {}
        for kept, numbers in owned:
            assert 0 not in numbers and len(set(numbers)) == len(numbers)
            for place, number in enumerate(numbers):
                before = kept[: min(len(kept), (place + 1) * PAGE)]
                assert seen.setdefault(number, before) == before
        assert pool.used == len(seen)
    for _, pages in owned:
        pool.release(pages)
    assert pool.used == 0


def test_a_pool_without_pages_says_so() -> None:
    pool = PagePool(2)
    pool.take()
    with pytest.raises(RequestError, match="all 1 pages"):
        pool.take()
