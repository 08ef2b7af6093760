"""The contests of CPU kernels: values are checked, verdicts follow from times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod.tools.bench import bar
from svod.tools.bench.cpu import bars, contest
from svod.tools.bench.cpu.operators import NumpyOperators, SvodOperators
from svod.tools.bench.cpu.peers import PEERS, Peer, Svod
from svod.tools.bench.cpu.work import WORKS, Work, attention, decode, gpt2, product
from svod.tools.bench.cpu.worker import Worker, error_of


def outcome(*seconds: float, **facts: Any) -> contest.Outcome:
    return contest.Outcome(list(seconds), 1e-7, facts)


def ours_of(work: Work) -> list[Any]:
    peer = Svod(1)
    found: list[Any] = peer.arrays(peer.build(work, [], "")())
    return found


@pytest.mark.parametrize("form", ["ab", "Ab", "aB", "AB"])
def test_products_are_what_numpy_says(form: str) -> None:
    work = product(9, 17, 20, (), form)
    (found,) = ours_of(work)
    (wanted,) = contest.reference(work)
    assert wanted.dtype == np.float64
    assert error_of(found, wanted) < 1e-6


def test_small_models_are_what_numpy_says() -> None:
    for work in (
        gpt2(layers=1, width=32, heads=2, length=8, tokens=50),
        decode(layers=1, width=32, heads=2, hidden=40, past=7, tokens=50),
        attention(16),
    ):
        found, wanted = ours_of(work), contest.reference(work)
        assert len(found) == len(wanted)
        assert max(error_of(*pair) for pair in zip(found, wanted, strict=True)) < 1e-5


def test_the_reference_convolves_and_pools() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 4, 9, 9)).astype(np.float32)
    w = rng.standard_normal((6, 2, 3, 3)).astype(np.float32)
    ours, theirs = SvodOperators(), NumpyOperators()
    found = ours.conv2d(svod.Tensor(x), svod.Tensor(w), 2, 1, 2).numpy()
    assert error_of(found, theirs.conv2d(x.astype(np.float64), w, 2, 1, 2)) < 1e-6
    assert error_of(ours.maxpool(svod.Tensor(x), 3, 2, 1).numpy(), theirs.maxpool(x, 3, 2, 1)) == 0


def test_every_bar_has_its_work() -> None:
    listed = [*bars.SQUARES, *bars.ODD, *bars.OTHER_PRODUCTS, *bars.NARROW, *bars.ROWS]
    for one in [*listed, *bars.IMAGES, *bars.MODELS]:
        assert one.work in WORKS


def test_the_best_rival_counts() -> None:
    found = {
        "ours": outcome(1e-3, 2e-3, 1e-3),
        "machine": outcome(1e-6, 1e-6, 1e-6),
        "slow": outcome(9e-3, 9e-3, 9e-3),
        "quick": outcome(1.2e-3, 2.2e-3, 1.1e-3),
        "broken": contest.Outcome(facts={"failed": "no"}, problem="no"),
    }
    (line,) = bars.lines_of(bars.Bar("matmul_256", "product", 1.0), found)
    assert line.verdict == bar.OK
    assert line.ratio == pytest.approx(1.1)
    assert "quick" in line.note and "broken failed: no" in line.note
    (line,) = bars.lines_of(bars.Bar("matmul_256", "product", 1.5), found)
    assert line.verdict == bar.SHORT


def test_wrong_results_of_ours_fail_and_no_rival_is_no_verdict() -> None:
    wrong = contest.Outcome(problem="its results are off by 1")
    (line,) = bars.lines_of(bars.Bar("matmul_256", "product", 1.0), {"ours": wrong})
    assert (line.verdict, line.note) == (bar.FAILED, "its results are off by 1")
    alone = {"ours": outcome(1e-3, kernels=2)}
    first, second = bars.lines_of(bars.Bar("softmax", "rows", 1.0, kernels=1), alone)
    assert first.verdict == bar.NO_PEER
    assert second.verdict == bar.SHORT


def test_workers_check_values(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKS, "tiny", lambda: product(4, 5, 6))
    (wanted,) = contest.reference(product(4, 5, 6))
    np.save(tmp_path / "output000.npy", wanted + 1)
    worker = Worker("numpy", 1)
    assert worker.build("tiny", str(tmp_path))["error"] > 0.1
    assert worker.turn(0.001)["calls"] >= 3
    assert issubclass(PEERS["numpy"], Peer)


def test_a_contest_in_processes() -> None:
    with contest.arena() as workers:
        chosen = {name: workers[name] for name in ("ours", "machine", "numpy")}
        found = contest.compete("matmul_65x1000x129", chosen, rounds=2)
        assert "AttributeError" in workers["numpy"].ask(do="nothing")["failed"]
    for name, one in found.items():
        assert not one.problem, name
        assert len(one.seconds) == 2
    assert found["ours"].error < 1e-5
    assert found["machine"].facts["flops"] > 0
