"""`python -m svod.tools.bench`: run the bars, print a line for each."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from svod.base.errors import ConfigError
from svod.tools.bench.bar import FAILED, FIGURE, SHORT, Line
from svod.tools.bench.groups import GROUPS, choose, run_all
from svod.tools.bench.page import as_data, as_markdown, machine, summary, summary_text, write_page


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status is 1 when a bar is short or a case failed, 2 for wrong usage."""
    options = build_parser().parse_args(arguments)
    if options.list:
        for group, cases in GROUPS.items():
            print(group)
            for case in cases:
                print(f"  {case.name:20} {case.about}")
        return 0
    try:
        chosen = choose(options.only)
    except ConfigError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts, command = machine(), command_line(options)
    print(" · ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    groups = run_all(chosen, show)
    print(summary_text(groups))
    if options.json:
        Path(options.json).write_text(json.dumps(as_data(groups, facts, command), indent=2) + "\n")
    if options.markdown:
        write_page(Path(options.markdown), as_markdown(groups, facts, command))
    count = summary(groups)
    return 1 if count[SHORT] or count[FAILED] else 0


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m svod.tools.bench", description="Measure the bars of the project."
    )
    parser.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="name",
        help="run these cases or groups; globs are allowed",
    )  # fmt: skip
    parser.add_argument("--json", metavar="file", help="write all figures as one JSON object")
    parser.add_argument("--markdown", metavar="file", help="write the figures into a page")
    parser.add_argument("--list", action="store_true", help="name the groups and cases")
    return parser


def command_line(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    if not options.only:
        return "make bench"
    return shlex.join(["python", "-m", "svod.tools.bench", "--only", *options.only])


def show(group: str, line: Line) -> None:
    """One line for people."""
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    verdict = "" if line.verdict == FIGURE else line.verdict
    note = f"  ({line.note})" if line.note else ""
    print(
        f"{line.name:52} {line.required:>11} {line.measured:>12} {ratio:>8} {verdict:8}{note}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
