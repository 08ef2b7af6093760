"""`python -m tests.mutants`: plants faults, and says which of them the tests of the stage notice.

Every fault gets a process of its own that stops at the first test that fails; one that computes for
far longer than the tests do without a fault is ended, and counts as noticed, as does one that
crashes. Time is the processor's, so that other work on the machine does not count.
Faults that change nothing that anybody could see are listed in equivalent.txt with the reason, and
do not count. The answer is a failure where fewer than 95 of 100 are noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.mutants.faults import Fault
from tests.mutants.stages import ROOT, STAGES, Stage, chosen

LEAST = 0.95  # of the faults have to be noticed
SEED = 14
SLOWER = 4.0  # times the processor time of the tests without a fault: what takes longer hangs
WAITS = 1800.0  # seconds of the clock after which a process that computes nothing is ended
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    stage: str
    fault: Fault
    verdict: str  # "noticed", "hung", "crashed", "equivalent", "SURVIVED"
    by: str  # the test that failed, or the reason why it is equivalent
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.verdict:10} {self.seconds:5.1f} s  {self.fault.name}  [{self.by}]"


def equivalent() -> dict[str, str]:
    """Faults that change nothing, by name, with the reason."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    parts = [line.rsplit(" | ", 1) for line in lines if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, reason in parts}


class Runner:
    """Runs the tests of a fault in a process of its own, over a copy of a warm cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warm = folder / "warm"
        self.seconds: dict[str, float] = {}  # of processor time, for a stage without a fault

    def measure(self, stage: Stage) -> None:
        """How long the tests of a stage take; they have to pass."""
        every = [test for file in stage.files for test in stage.files[file]]
        before = _children_seconds()
        run = self._run([*every, *stage.tests], self.warm, 0.0, None)
        if run.returncode != 0:
            sys.exit(f"the tests of {stage.name} fail without a fault:\n{run.stdout[-3000:]}")
        self.seconds[stage.name] = _children_seconds() - before
        print(f"{stage.name}: tests take {self.seconds[stage.name]:.0f} s", flush=True)

    def outcome(self, stage: Stage, fault: Fault) -> Outcome:
        """Whether the tests of the stage notice a fault."""
        own = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(self.warm, own, dirs_exist_ok=True)
        start = time.monotonic()
        limit = SLOWER * self.seconds[stage.name] + 20
        try:
            run = self._run(stage.tests_of(fault.file), own, limit, fault)
        except subprocess.TimeoutExpired:
            return Outcome(stage.name, fault, "hung", f"after {WAITS:.0f} s", WAITS)
        finally:
            shutil.rmtree(own, ignore_errors=True)
        took = time.monotonic() - start
        if run.returncode == -signal.SIGXCPU:
            return Outcome(stage.name, fault, "hung", f"after {limit:.0f} s of computing", took)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
        if run.returncode == 0:
            return Outcome(stage.name, fault, "SURVIVED", "all tests pass", took)
        if failed or run.returncode in (1, 2, 3, 4):  # 2 to 4: the tests could not even be loaded
            by = failed[0].split("/")[-1] if failed else "the tests cannot be loaded"
            return Outcome(stage.name, fault, "noticed", by, took)
        return Outcome(stage.name, fault, "crashed", f"exit status {run.returncode}", took)

    def _run(
        self, tests: list[str], cache: Path, limit: float, fault: Fault | None
    ) -> subprocess.CompletedProcess[str]:
        plugin = ["-p", "tests.mutants.plant"] if fault is not None else []
        environment = {**os.environ, "SVOD_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
        if fault is not None:
            environment["SVOD_FAULT"] = json.dumps(asdict(fault))
            environment["SVOD_FAULT_SECONDS"] = str(int(limit))
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
            "-rfE", "--timeout", "120", *plugin, *[f"tests/{test}" for test in tests],
        ]  # fmt: skip
        return subprocess.run(
            command, cwd=ROOT, env=environment, timeout=WAITS, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def _children_seconds() -> float:
    """Processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="which faults are drawn")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    parser.add_argument("--stage", default="", choices=["", *[s.name for s in STAGES]])
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    asked = parser.parse_args()
    wanted = [
        (stage, fault)
        for stage, fault in chosen(asked.seed)
        if asked.only in fault.name and asked.stage in ("", stage.name)
    ]
    if asked.list:
        print("\n".join([f"{f.name}   (line {f.line})" for _, f in wanted]))
        return 0
    known = equivalent()
    outcomes = [
        Outcome(s.name, f, "equivalent", known[f.name]) for s, f in wanted if f.name in known
    ]
    with tempfile.TemporaryDirectory(prefix="svod-mutants-") as folder:
        runner = Runner(Path(folder))
        for stage in {stage.name: stage for stage, _ in wanted}.values():
            runner.measure(stage)
            own = [f for s, f in wanted if s is stage and f.name not in known]
            with ThreadPoolExecutor(asked.jobs) as pool:
                for outcome in pool.map(partial(runner.outcome, stage), own):
                    outcomes.append(outcome)
                    print(outcome, flush=True)
    return summary(outcomes)


def summary(outcomes: list[Outcome]) -> int:
    """The figures, and the exit status."""
    counted = [o for o in outcomes if o.verdict != "equivalent"]
    for stage in dict.fromkeys(o.stage for o in counted):
        own = [o for o in counted if o.stage == stage]
        print(f"{stage}: {sum(o.verdict != 'SURVIVED' for o in own)} of {len(own)} noticed")
    lost = [o for o in counted if o.verdict == "SURVIVED"]
    share = 1 - len(lost) / max(1, len(counted))
    print(
        f"{len(outcomes)} faults, {len(outcomes) - len(counted)} of them change nothing: "
        f"{len(counted) - len(lost)} of {len(counted)} noticed ({share:.1%})"
    )
    for outcome in lost:
        print(f"survived: {outcome.fault.name}   (line {outcome.fault.line})")
    return 0 if share >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
