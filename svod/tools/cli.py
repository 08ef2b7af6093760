"""`svod <verb>`: the command line.

A verb is a function from parsed arguments to a `Report`; here it is printed, as text or as JSON.
Each verb imports what it needs when it runs, so that `--help` and `env` never load LLVM.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from svod._version import __version__
from svod.base.errors import SvodError
from svod.tools.report import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 0, 1 for a failed check or an error, 2 for wrong usage."""
    parser = build_parser()
    own, program = _split(list(sys.argv[1:] if arguments is None else arguments))
    options = parser.parse_args(own)
    if program:
        options.arguments = [*options.arguments, *program]
    if options.verb is None:
        parser.print_help()
        return 2
    run: Callable[[argparse.Namespace], Report] = options.run
    try:
        report = run(options)
        text = json.dumps(report.data, indent=2) if options.json else report.text
        if text:
            _print(text)
    except SvodError as error:
        print(f"svod {options.verb}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has left
        return 1
    return 0 if report.ok else 1


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and after `--` what a program is given that we run."""
    if arguments[:1] not in (["profile"], ["viz"]) or "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(
        prog="svod", description="A machine-learning compiler and runtime."
    )
    parser.add_argument("--version", action="version", version=f"svod {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    for name, run, help_text in VERBS:
        verb = verbs.add_parser(name, help=help_text, description=help_text)
        verb.add_argument("--json", action="store_true", help="print one JSON object")
        verb.set_defaults(run=run)
        if name == "demo":
            verb.add_argument("--steps", type=_positive, default=600, help="of training")
        if name == "cache":
            from svod.tools.cache import add_arguments

            add_arguments(verb)
        if name == "launch":
            from svod.tools.launching import add_arguments

            add_arguments(verb)
        if name == "tune":
            from svod.tools.tune import add_arguments

            add_arguments(verb)
        if name == "top":
            from svod.tools.top import add_arguments

            add_arguments(verb)
        if name == "viz":
            from svod.tools.viewing import add_arguments

            add_arguments(verb)
        if name == "quantize":
            from svod.tools.quantizing import add_arguments

            add_arguments(verb)
        if name in LANGUAGE_VERBS:
            from svod.tools.language_arguments import add_arguments as add_language_arguments

            add_language_arguments(verb, name)
        if name in MODEL_VERBS:
            from svod.tools.model_arguments import add_arguments as add_model_arguments

            add_model_arguments(verb, name)
    return parser


def _demo(options: argparse.Namespace) -> Report:
    from svod.tools.demo import demo

    return demo(options.steps)


def _doctor(options: argparse.Namespace) -> Report:
    from svod.tools.doctor import doctor

    return doctor()


def _launch(options: argparse.Namespace) -> Report:
    from svod.tools.launching import launch

    return launch(options)


def _cache(options: argparse.Namespace) -> Report:
    from svod.tools.cache import cache

    return cache(options)


def _env(options: argparse.Namespace) -> Report:
    from svod.tools.environment import environment

    return environment()


def _tune(options: argparse.Namespace) -> Report:
    from svod.tools.tune import tune

    return tune(options)


def _bench(options: argparse.Namespace) -> Report:
    from svod.tools.comparing import bench

    return bench(options)


def _compile(options: argparse.Namespace) -> Report:
    from svod.tools.running import compile_model

    return compile_model(options)


def _explain(options: argparse.Namespace) -> Report:
    from svod.tools.running import explain

    return explain(options)


def _inspect(options: argparse.Namespace) -> Report:
    from svod.tools.inspecting import inspect

    return inspect(options)


def _profile(options: argparse.Namespace) -> Report:
    from svod.tools.running import profile

    return profile(options)


def _top(options: argparse.Namespace) -> Report:
    from svod.tools.top import top

    return top(options)


def _viz(options: argparse.Namespace) -> Report:
    from svod.tools.viewing import viz

    return viz(options)


def _bench_llm(options: argparse.Namespace) -> Report:
    from svod.tools.language import bench

    return bench(options)


def _chat(options: argparse.Namespace) -> Report:
    from svod.tools.language import chat

    return chat(options)


def _generate(options: argparse.Namespace) -> Report:
    from svod.tools.language import generate

    return generate(options)


def _serve(options: argparse.Namespace) -> Report:
    from svod.tools.serving import serve

    return serve(options)


def _quantize(options: argparse.Namespace) -> Report:
    from svod.tools.quantizing import quantize

    return quantize(options)


def _run(options: argparse.Namespace) -> Report:
    from svod.tools.running import run

    return run(options)


MODEL_VERBS = frozenset({"bench", "compile", "explain", "inspect", "profile", "run", "viz"})
LANGUAGE_VERBS = frozenset({"bench-llm", "chat", "generate", "serve"})
VERBS: tuple[tuple[str, Callable[[argparse.Namespace], Report], str], ...] = (
    ("bench", _bench, "Time an ONNX model, beside onnxruntime where it is installed."),
    ("bench-llm", _bench_llm, "Time prompts and answers of a language model."),
    ("cache", _cache, "List, prune, clear, export or import what is kept on disk."),
    ("chat", _chat, "Talk to a language model."),
    ("compile", _compile, "Write an ONNX model as a plan, which loads in milliseconds."),
    ("demo", _demo, "Train a small network before your eyes, and compare it with NumPy and torch."),
    ("doctor", _doctor, "Show what is installed and usable here, and run a self-test."),
    ("env", _env, "Show every SVOD_* variable: value, default, meaning."),
    ("explain", _explain, "Show the kernels that a model or a plan is made of."),
    ("generate", _generate, "Continue a text with a language model."),
    ("inspect", _inspect, "Show what a model or a plan takes, gives and needs."),
    ("launch", _launch, "Run a program in several processes that share tensors over a mesh."),
    ("profile", _profile, "Show the time of each kernel of a model, a plan or a script."),
    ("quantize", _quantize, "Write a language model in fewer bits, and say what that cost."),
    ("run", _run, "Run a model or a plan once."),
    ("top", _top, "Show the plans of running processes that were started with SVOD_TOP=1."),
    ("serve", _serve, "Serve a language model: the OpenAI interface and a page to chat."),
    ("tune", _tune, "Search for better loops of kernels and keep them for every process."),
    ("viz", _viz, "Show a model, a plan or the plans of a program as a page in the browser."),
)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _print(text: str) -> None:
    print(text, flush=True)
