from __future__ import annotations

import threading
import time

import pytest

from svod.base import timing
from svod.base.timing import RING_SIZE, span


@pytest.fixture(autouse=True)
def empty_ring() -> None:
    timing.clear()


def test_spans_nest_and_carry_their_thread() -> None:
    with span("outer"), span("inner"):
        time.sleep(0.002)
    inner, outer = timing.spans()
    assert (inner.name, outer.name) == ("inner", "outer")
    assert outer.start_ns <= inner.start_ns < inner.end_ns <= outer.end_ns
    assert inner.end_ns - inner.start_ns >= 2_000_000
    assert inner.thread == threading.get_ident()


def test_a_block_that_fails_is_noted_and_the_exception_passes() -> None:
    with pytest.raises(KeyError), span("bad"):
        raise KeyError
    assert [each.name for each in timing.spans()] == ["bad"]


def test_totals_add_up_by_name_and_begin_where_asked() -> None:
    with span("before"):
        pass
    since = time.perf_counter_ns()
    for _ in range(3):
        with span("short"):
            pass
    with span("long"):
        time.sleep(0.002)
    totals = timing.totals(since)
    assert list(totals) == ["long", "short"]
    assert totals["short"] == sum(
        each.end_ns - each.start_ns for each in timing.spans() if each.name == "short"
    )


def test_the_ring_is_bounded() -> None:
    for number in range(RING_SIZE + 10):
        with span(str(number)):
            pass
    noted = timing.spans()
    assert len(noted) == RING_SIZE
    assert noted[0].name == "10"


def test_reading_while_others_write() -> None:
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            with span("worker"):
                pass

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(200):
            timing.spans()
    finally:
        done.set()
        worker.join()


def test_a_span_costs_little() -> None:
    best = min(_cost() for _ in range(5))
    assert best < 5e-6, f"{best * 1e9:.0f} ns for one span"


def _cost() -> float:
    start = time.perf_counter()
    for _ in range(1000):
        with span("x"):
            pass
    return (time.perf_counter() - start) / 1000
