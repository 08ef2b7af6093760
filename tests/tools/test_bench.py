from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from svod.base.errors import ConfigError
from svod.tools.bench import bar, groups, kernels, measure, models, page, peak, preparation, stress
from svod.tools.bench.__main__ import main


def lines() -> dict[str, list[bar.Line]]:
    return {
        "speed": [
            bar.at_most("short wait", 0.5, 1.0),
            bar.at_least("a | b", 0.5, 1.0, bar.times, "slow"),
            bar.figure("count", "12"),
            bar.failure("peer", bar.MissingPeer("torch is not installed")),
            bar.failure("broken", ValueError("no\nway")),
        ]
    }


def test_ratios_above_one_mean_that_a_bar_is_reached() -> None:
    under, over = bar.at_most("x", 0.5, 1.0), bar.at_most("x", 2.0, 1.0)
    assert (under.ratio, under.verdict) == (2.0, bar.OK)
    assert (over.ratio, over.verdict) == (0.5, bar.SHORT)
    quick, slow = bar.at_least("x", 2.0, 1.0, bar.times), bar.at_least("x", 0.5, 1.0, bar.times)
    assert (quick.ratio, quick.verdict) == (2.0, bar.OK)
    assert (slow.ratio, slow.verdict) == (0.5, bar.SHORT)


def test_a_missing_peer_is_not_counted_as_reached() -> None:
    assert page.summary(lines()) == {"ok": 1, "short": 1, "no peer": 1, "failed": 1, "figure": 1}
    assert page.summary_text(lines()) == (
        "1 of 4 bars are reached, 1 short, 1 without a peer, 1 failed."
    )
    with pytest.raises(bar.MissingPeer, match="no_such_framework is not installed"):
        bar.peer("no_such_framework")


def test_a_case_that_fails_says_why() -> None:
    def broken() -> Iterator[bar.Line]:
        yield bar.figure("before", "1")
        raise ValueError("it broke")

    first, second = groups.lines_of(bar.Case("sad", "", broken))
    assert first.name == "before"
    assert (second.name, second.verdict, second.note) == ("sad", "failed", "ValueError: it broke")


def test_cases_are_chosen_by_name_group_and_glob() -> None:
    def names(*patterns: str) -> list[str]:
        return [case.name for _, case in groups.choose(patterns)]

    assert names("stress") == ["stack", "chain", "deep"]
    assert names("prepare_*", "exp")[-1] == "exp"
    every = names()
    assert len(every) == len(set(every))
    with pytest.raises(ConfigError, match="no case or group is called 'dance'"):
        groups.choose(["dance"])


def test_the_page_keeps_what_is_around_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    page.write_page(path, page.as_markdown(lines(), {"Python": "3"}, "make bench"))
    text = path.read_text()
    assert text.startswith("# Benchmarks") and "Measured by `make bench`." in text
    assert "| a \\| b | ≥ 1.00 × | 0.50 × | 0.50 | short | slow |" in text
    path.write_text(text + "\nWritten by hand.\n")
    page.write_page(path, "new\n")
    again = path.read_text()
    assert again.count(page.BEGIN) == 1 and f"{page.BEGIN}\nnew\n{page.END}\n" in again
    assert again.startswith("# Benchmarks") and again.endswith("Written by hand.\n")


def test_the_command_runs_a_group_in_processes_of_their_own(tmp_path: Path) -> None:
    written = tmp_path / "found.json"
    main(["--only", "warm_process", "--json", str(written)])
    found = json.loads(written.read_text())
    assert found["groups"]["startup"][0]["name"] == "warm process loads llvmlite"
    assert found["summary"]["failed"] == 0
    assert main(["--only", "dance"]) == 2


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(case.name in printed for _, case in groups.choose([]))


def test_contenders_take_turns() -> None:
    order: list[str] = []
    contenders = {name: lambda name=name: order.append(name) for name in "ab"}
    rounds = measure.alternate(contenders, rounds=2, calls=2)
    assert "".join(order) == "aabb" * 3
    assert [len(times) for times in rounds.seconds.values()] == [2, 2]
    assert measure.Rounds({"a": [1, 2, 4], "b": [2, 2, 2]}).speed("a", "b") == 1.0


def test_a_fresh_process_that_fails_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended with status 1: ValueError: no"):
        measure.run_program("raise ValueError('no')")


def test_kernel_counts_are_lines() -> None:
    found = list(kernels.counts())
    assert [line.name for line in found] == [f"kernels of {p.name}" for p in kernels.PIECES]


@pytest.mark.parametrize("strain", stress.STRAINS, ids=lambda strain: strain.name)
def test_small_strains_agree_with_numpy(strain: stress.Strain) -> None:
    assert stress.evaluate(strain, 20).error < 1e-4


def test_the_peak_does_what_it_counts() -> None:
    chains = peak.Peak()
    chains()
    assert np.all(chains._values == 1.0)
    assert chains.flops == 2 * chains._values.size * peak.TURNS


def test_preparation_reports_its_steps() -> None:
    found = preparation.prepare_once(models.matmul(24, 16, 8))
    assert found["launches"] == found["kernels"] == 1
    assert found["total"] >= found["graph"] > 0 and found["new_nodes"] > 0
    assert "1 kernels" in preparation.steps(found)


def test_the_transformer_agrees_with_numpy() -> None:
    model = models.gpt2(layers=2, width=32, heads=4, length=6, vocabulary=11)
    found = model.run(model.tensors()).numpy()
    expected = gpt2_reference(model.arrays, layers=2, heads=4)
    assert found.shape == (1, 6, 11)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def gpt2_reference(arrays: dict[str, models.Array], layers: int, heads: int) -> models.Array:
    a = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}

    def normed(x: models.Array, name: str) -> models.Array:
        part = {"x": x, "w": a[f"{name}.scale"], "b": a[f"{name}.shift"]}
        return kernels.layernorm_of(part)

    def linear(x: models.Array, name: str) -> models.Array:
        return np.asarray(x @ a[f"{name}.w"].T + a[f"{name}.b"])

    def gelu(x: models.Array) -> models.Array:
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))

    x = a["tokens"][a["ids"]] + a["positions"]
    batch, length, width = x.shape
    for layer in range(layers):
        qkv = linear(normed(x, f"{layer}.before"), f"{layer}.qkv")
        q, k, v = qkv.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width // heads)
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        mixed = (kernels.softmax_of(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + linear(mixed, f"{layer}.out")
        hidden = gelu(linear(normed(x, f"{layer}.between"), f"{layer}.up"))
        x = x + linear(hidden, f"{layer}.down")
    return np.asarray(normed(x, "last") @ a["tokens"].T)


def test_a_small_resnet_prepares() -> None:
    model = models.resnet18(size=32, widths=(4, 4, 8, 8))
    output = model.run(model.tensors())
    plan = output.prepare()
    plan.execute()
    assert output.shape == (1, 1000) and np.isfinite(output.numpy()).all()
