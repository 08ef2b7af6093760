"""torch's database of operators through the backend: ``python -m tests.frontend.torch.opinfo``.

For every operator and a few dtypes, samples of torch's own are compiled and compared with eager,
gradients too where there are any. A child does the work, since an operator may hang or crash.
``--only NAME`` picks operators by parts of their names, ``--budget S`` stops after so many seconds,
``--write`` puts what was found into the table of docs/torch-compile-ops.md, row by row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from svod.frontend.torch import backend, report

PAGE = Path(__file__).parents[3] / "docs" / "torch-compile-ops.md"
COUNTS = {torch.float32: 6, torch.int64: 3, torch.bool: 2, torch.complex64: 3}
LIMIT = 90  # seconds for one operator, in all its dtypes
# torch does not say which of equal elements these name; floats of samples have no equal ones.
TIES = {"argsort", "kthvalue", "median", "nanmedian", "mode", "sort", "topk", "msort"}
STATES = {
    "plan": "every sample is right, as plans only",
    "torch": "every sample is right; torch ran the operators that are named, between plans",
    "no graph": "dynamo records nothing, so eager runs",
    "not compiled": "torch's own backend `aot_eager` fails or differs from eager too",
    "fault": "right, but a translation failed and torch stood in for it",
    "wrong": "a result differs from eager's",
    "error": "compiled code raised an error where eager's did not",
    "time": f"not done within {LIMIT} seconds",
}


def database() -> list[Any]:
    """torch's operators with samples. Its tests import a package that the samples do not need."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch._dynamo import trace_rules
    from torch.testing._internal import common_methods_invocations as samples

    # Operators that are written as functions there are recorded like any other function.
    trace_rules.MOD_INLINELIST.add("torch.testing._internal.common_methods_invocations")
    trace_rules.get_mod_inlinelist.cache_clear()
    samples.wrapper_set_seed = lambda op, *args, **named: op(*args, **named)  # breaks every graph
    return sorted(samples.op_db, key=title)


def title(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


# -- one operator ----------------------------------------------------------------------------------


class Sample:
    """One call: the tensors among its arguments, and a function of them."""

    def __init__(self, op: Any, sample: Any) -> None:
        self.op = op
        self.leaves, self.form = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.changed = sample.output_process_fn_grad

    def tensors(self) -> list[torch.Tensor]:
        """Copies of the arguments, in the strides they have."""
        found = []
        for place in self.places:
            given = self.leaves[place]
            found.append(given.detach().clone().requires_grad_(given.requires_grad))
        return found

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        given = list(self.leaves)
        for place, t in zip(self.places, tensors, strict=True):
            given[place] = t
        first, args, named = tree_unflatten(given, self.form)
        return self.changed(self.op(first, *args, **named))

    def is_plain(self) -> bool:
        return all(self.leaves[p].layout == torch.strided for p in self.places)


def samples_of(op: Any, dtype: torch.dtype) -> list[Sample]:
    """A few samples of an operator, spread over those it has."""
    if dtype not in op.dtypes:
        return []
    wants_grad = op.supports_autograd and dtype == torch.float32
    torch.manual_seed(0)
    found = [Sample(op, s) for s in op.sample_inputs("cpu", dtype, requires_grad=wants_grad)]
    found = [s for s in found if s.is_plain()]
    count = min(COUNTS[dtype], len(found))
    return [found[i * len(found) // count] for i in range(count)]


def outcome(run: Callable[..., Any], sample: Sample) -> list[Any]:
    """Results of a call, then the gradients of its arguments."""
    tensors = sample.tensors()
    found = [r for r in tree_flatten(run(tensors))[0] if isinstance(r, torch.Tensor)]
    slopes = [r for r in found if r.requires_grad and r.dtype == torch.float32]
    if slopes:
        total = sum((r * torch.linspace(0.5, 1.5, r.numel()).view(r.shape)).sum() for r in slopes)
        total.backward()
    kept = [t.grad for t in tensors if t.requires_grad]
    return [r.detach().clone() for r in found] + [g for g in kept if g is not None]


def difference(got: list[Any], want: list[Any], values: bool) -> str:
    """What is not alike, or nothing."""
    if len(got) != len(want):
        return f"{len(got)} results and gradients for {len(want)}"
    for place, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {place}: {a.dtype} {tuple(a.shape)} for {b.dtype} {tuple(b.shape)}"
        if not values or a.layout != torch.strided:
            continue
        options = {"rtol": 0.0, "atol": 0.0}
        if b.dtype.is_floating_point or b.dtype.is_complex:
            finite = b[b.isfinite()]
            largest = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
            options = {"rtol": 1e-3, "atol": 1e-4 * largest}
        try:
            torch.testing.assert_close(a, b, equal_nan=True, **options)
        except AssertionError as error:
            text = " ".join(str(error).split())
            return f"result {place}: {text[:110]}"
    return ""


def is_repeatable(sample: Sample, want: list[Any]) -> bool:
    """Whether values are determined: not of random numbers, nor of memory without values."""
    if "empty" in sample.op.name:
        return False
    has_ties = any(not sample.leaves[p].dtype.is_floating_point for p in sample.places)
    if sample.op.name in TIES and has_ties:
        return False
    torch.manual_seed(1)
    again = outcome(sample, sample)
    return not difference(again, want, True)


def torch_compiles(sample: Sample, want: list[Any], values: bool) -> bool:
    """Whether torch's own recording, run by torch, gives what eager gives."""
    torch._dynamo.reset()
    try:
        got = outcome(torch.compile(sample.__call__, backend="aot_eager"), sample)
    except Exception:
        return False
    return not difference(got, want, values)


def tried(sample: Sample) -> tuple[str, str]:
    """What becomes of one sample."""
    torch.manual_seed(0)
    try:
        want = outcome(sample, sample)
    except Exception:
        return "", ""  # eager does not do it either
    values = is_repeatable(sample, want)
    torch._dynamo.reset()
    report().clear()
    try:
        got = outcome(torch.compile(sample.__call__, backend=backend), sample)
    except Exception as error:
        lines = [line for line in str(error).split("\n") if line.strip()]
        why = f"{type(error).__name__}: {' '.join(lines[:2])[:160]}"
        return ("error", why) if torch_compiles(sample, want, values) else ("not compiled", "")
    if wrong := difference(got, want, values):
        return ("wrong", wrong) if torch_compiles(sample, want, values) else ("not compiled", "")
    if report().faults:
        return "fault", ", ".join(sorted(report().faults))[:160]
    if report().fallbacks:
        return "torch", ", ".join(sorted(report().fallbacks))
    return ("plan" if report().graphs else "no graph"), ""


_WORST = ("wrong", "error", "fault", "torch", "plan", "not compiled", "no graph")


def state_of(op: Any) -> tuple[str, str]:
    """The worst state of all samples, and what is to be said about it."""
    found: dict[str, dict[str, None]] = {}
    for dtype in COUNTS:
        for sample in samples_of(op, dtype):
            state, why = tried(sample)
            if why and state != "torch":
                why = f"{str(dtype).removeprefix('torch.')}: {why}"
            found.setdefault(state, {})[why] = None
    for state in _WORST:
        if state in found:
            names = sorted({n for why in found[state] for n in why.split(", ")} - {""})
            shown = ", ".join(names) if state == "torch" else next(iter(found[state]))
            return state, shown.replace("|", "/").replace("\n", " ")
    return "no sample", ""


# -- children --------------------------------------------------------------------------------------


def work(pipe: Any) -> None:
    """A child: takes places in the database, gives states."""
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    known = database()
    while (place := pipe.recv()) is not None:
        try:
            pipe.send(state_of(known[place]))
        except Exception as error:
            pipe.send(("error", f"{type(error).__name__}: {str(error)[:160]}"))


class Child:
    """A process that can be lost."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, place: int) -> tuple[str, str] | None:
        """A state, or None where the child is no more; the caller starts another."""
        self.pipe.send(place)
        if not self.pipe.poll(LIMIT):
            self.process.kill()
            return None
        try:
            return self.pipe.recv()
        except EOFError:
            return "error", "the process died"

    def is_alive(self) -> bool:
        return self.process.is_alive()


def run(places: list[int], names: list[str], budget: float) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    start, child = time.monotonic(), Child()
    for place in places:
        if time.monotonic() - start > budget:
            print(f"the budget of {budget:g} seconds is spent", flush=True)
            break
        state = child.ask(place) or ("time", "")
        if not child.is_alive() or state[1] == "the process died":
            child = Child()
        found[names[place]] = state
        if state[0] not in ("plan", "torch", "no sample"):
            print(f"{state[0]:12} {names[place]:50} {state[1]}", flush=True)
    child.process.kill()
    return found


# -- the page --------------------------------------------------------------------------------------


def read_page() -> dict[str, tuple[str, str]]:
    """The rows of the table as it is."""
    found = {}
    for line in PAGE.read_text().splitlines() if PAGE.exists() else ():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            found[cells[1].strip("`")] = (cells[2], cells[3])
    return found


def write_page(rows: dict[str, tuple[str, str]]) -> None:
    counts = Counter(state for state, _ in rows.values())
    lines = [
        "# torch's operator database through the backend",
        "",
        "`python -m tests.frontend.torch.opinfo --write` makes this page: samples of torch's own",
        "`op_db` in float32 (with gradients), int64, bool and complex64, compiled with",
        '`backend="svod"`, beside eager. The worst sample of an operator decides.',
        "",
        "| State | Operators | Meaning |",
        "|---|---|---|",
        *[f"| {s} | {counts[s]} | {why} |" for s, why in STATES.items() if counts[s]],
        "",
        "| Operator | State | Operators that torch runs, or what is wrong |",
        "|---|---|---|",
        *[f"| `{name}` | {state} | {why} |" for name, (state, why) in sorted(rows.items())],
    ]
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--state", nargs="*", default=[], help="those in these states in the page")
    parser.add_argument("--missing", action="store_true", help="those that the page lacks")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--write", action="store_true", help="put the rows into the page")
    options = parser.parse_args()
    names = [title(op) for op in database()]
    rows = read_page()
    places = [
        p
        for p, n in enumerate(names)
        if (not options.only or any(part in n for part in options.only))
        and (not options.state or rows.get(n, ("",))[0] in options.state)
        and not (options.missing and n in rows)
    ]
    found = run(places, names, options.budget)
    counts = Counter(state for state, _ in found.values())
    print(", ".join(f"{count} {state}" for state, count in counts.most_common()))
    if options.write:
        known = {n: s for n, s in {**rows, **found}.items() if n in names and s[0] != "no sample"}
        write_page(known)
    return int(any(counts[s] for s in ("wrong", "error", "fault", "time")))


if __name__ == "__main__":
    sys.exit(main())
