"""`svod viz`: the page about a model, a plan, or the plans that a program makes.

A program runs as it would by itself and its plans are collected meanwhile; the page is there from
the start and shows what has run when it is loaded. It is served until Ctrl-C, or written as a file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import traceback
import webbrowser
from collections.abc import Sequence
from typing import Any

from svod.base.errors import ArgumentError
from svod.base.progress import step, watch
from svod.tools.model_arguments import is_plan, open_model, open_plan, prepared, require_file
from svod.tools.report import Report, byte_size
from svod.tools.running import run_script


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """What is looked at, and where the page goes."""
    verb.add_argument("model", help="an ONNX file, a plan (.svod) or a program (.py)")
    verb.add_argument("-o", "--output", metavar="FILE", help="write one HTML file, serve nothing")
    verb.add_argument("--before", metavar="PLAN", help="a saved plan to show beside")
    verb.add_argument("--no-browser", action="store_true", help="only say the address")
    verb.add_argument("--runs", type=int, default=3, help="runs for the times (default 3, 0: none)")
    verb.add_argument("--paths", action="store_true", help="name folders in the file")


def viz(options: argparse.Namespace) -> Report:
    """Serve the page, or write it."""
    if options.runs < 0:
        raise ArgumentError(f"--runs {options.runs}: the number of runs is at least 0")
    require_file(options.model)
    before = None
    if options.before is not None:
        require_file(options.before)
        before = open_plan(argparse.Namespace(**{**vars(options), "model": options.before}))
    if options.model.endswith(".py"):
        return _program(options, before)
    if options.arguments:
        raise ArgumentError("arguments are for programs")
    from svod.tools.viz import Shown

    plan = open_plan(options) if is_plan(options.model) else _plan_of_model(options)
    shown = [Shown(plan, os.path.basename(options.model))]
    if options.output:
        return _written(options, shown, before)
    with _served(options, shown, before) as viewer:
        _open(options, viewer)
        _wait()
    return _report(options, viewer.url, shown)


def _plan_of_model(options: argparse.Namespace) -> Any:
    model = open_model(options)
    plan = prepared(model, options.model)
    if plan is None:
        raise ArgumentError(f"there is no single plan to show: {'; '.join(model.notes)}")
    return plan


def _program(options: argparse.Namespace, before: Any) -> Report:
    """Run a program and show its plans, also those of one that failed or was stopped."""
    from svod.tools.viz import collected

    with contextlib.ExitStack() as held:
        shown = held.enter_context(collected())
        viewer = None
        if not options.output:
            viewer = held.enter_context(_served(options, shown, before))
            _say(f"the page is at {viewer.url}, also while the program runs")
        _run(options)
        shown.sort(key=lambda one: -one.spent_ns())
        if not shown:
            raise ArgumentError(f"{options.model} ran no plan")
        if viewer is None:
            return _written(options, shown, before)
        _open(options, viewer)
        _wait()
    return _report(options, viewer.url, shown)


def _run(options: argparse.Namespace) -> None:
    try:
        run_script(options.model, options.arguments, options.json)
    except KeyboardInterrupt:
        _say(f"{options.model} was stopped")
    except ArgumentError as problem:
        _say(str(problem))
    except Exception:
        traceback.print_exc()


@contextlib.contextmanager
def _served(options: argparse.Namespace, shown: Sequence[Any], before: Any) -> Any:
    from svod.tools.viz import Viewer

    name = os.path.basename(options.model)
    viewer = Viewer(shown, before=before, title=name, runs=options.runs)
    try:
        yield viewer
    finally:
        viewer.close()


def _open(options: argparse.Namespace, viewer: Any) -> None:
    _say(f"{viewer.url} until Ctrl-C")
    if not options.no_browser:
        webbrowser.open(viewer.url)


def _wait() -> None:
    """Until Ctrl-C; an event is waited for in turns, so that it arrives on every system."""
    never = threading.Event()
    with contextlib.suppress(KeyboardInterrupt):
        while not never.wait(0.5):
            pass


def _written(options: argparse.Namespace, shown: Sequence[Any], before: Any) -> Report:
    from svod.tools.viz import page_data, plan_data, report_html

    with watch(f"looking at {os.path.basename(options.model)}"):
        plans = []
        for one in shown:
            profiles = one.profiles()
            plans.append(
                plan_data(
                    one.plan, one.title, runs=options.runs, profiles=profiles, paths=options.paths,
                    step=lambda done, total: step("kernel", done, total),
                )
            )  # fmt: skip
        if before is not None:
            plans.insert(1, plan_data(before, "before", runs=options.runs, paths=options.paths))
    text = report_html(page_data(plans, before is not None))
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ArgumentError(f"{options.output}: {error.strerror}") from None
    return _report(options, options.output, shown)


def _report(options: argparse.Namespace, where: str, shown: Sequence[Any]) -> Report:
    data: dict[str, Any] = {"model": options.model, "plans": [one.summary() for one in shown]}
    if not options.output:
        return Report({**data, "url": where}, "")
    data |= {"file": where, "bytes": os.path.getsize(where)}
    plans = f"{len(shown)} plan{'' if len(shown) == 1 else 's'}"
    return Report(data, f"{where}: {plans}, {byte_size(data['bytes'])}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
