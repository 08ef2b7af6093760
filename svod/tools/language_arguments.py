"""What the verbs over language models take: the model, how tokens are drawn, where to serve."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svod.base.errors import ArgumentError
from svod.base.progress import watch

if TYPE_CHECKING:
    from svod.llm import LanguageModel, Sampling
    from svod.llm.grammar import Form

_SAMPLING = (
    ("temperature", float, 0.8, "0 takes the likeliest token"),
    ("top-k", int, 0, "draw from the likeliest so many tokens"),
    ("top-p", float, 1.0, "draw from the likeliest tokens of this share"),
    ("min-p", float, 0.0, "leave out tokens below this share of the likeliest"),
    ("repetition-penalty", float, 1.0, "divides scores of tokens that were there"),
    ("presence-penalty", float, 0.0, "taken from scores of tokens that were there"),
    ("frequency-penalty", float, 0.0, "the same, for each time they were there"),
    ("dry-multiplier", float, 0.0, "against repetitions of several tokens"),
    ("xtc-probability", float, 0.0, "how often the likeliest tokens are left out"),
    ("seed", int, None, "the same seed gives the same text"),
)


def add_arguments(verb: argparse.ArgumentParser, name: str) -> None:
    """The arguments of one verb."""
    about = "a GGUF file or a model folder; without it, the small model that ships"
    verb.add_argument("model", nargs="?", help=about)
    verb.add_argument("--context", type=int, help="most tokens of a prompt and its answer")
    verb.add_argument("--guesses", type=int, default=0, metavar="N",
                      help="tokens guessed from what was said, checked in one run")  # fmt: skip
    if name in ("chat", "generate"):
        for option, kind, default, help_text in _SAMPLING:
            verb.add_argument(f"--{option}", type=kind, default=default, help=help_text)
        verb.add_argument("--max-tokens", type=int, help="of an answer")
        verb.add_argument("--stop", action="append", default=[], help="a text that ends an answer")
        verb.add_argument("--json-schema", metavar="FILE", help="answers are JSON of this schema")
        verb.add_argument("--regex", help="answers match this pattern")
        verb.add_argument("--grammar", metavar="FILE", help="answers are of this grammar")
    if name == "chat":
        verb.add_argument("--system", help="a message before the conversation")
        verb.add_argument("--say", action="append", help="say this and leave; may be repeated")
    if name == "generate":
        verb.add_argument("--prompt", help="the text to continue; without it, what is piped in")
    if name == "bench-llm":
        verb.add_argument("-p", type=int, default=512, help="tokens of the prompt")
        verb.add_argument("-n", type=int, default=128, help="tokens that are generated")
        verb.add_argument("-r", type=int, default=3, help="repetitions")
    if name == "serve":
        verb.add_argument("--host", default="127.0.0.1", help="the address to listen at")
        verb.add_argument("--port", type=int, default=8080)
        verb.add_argument("--slots", type=int, default=4, help="requests at the same time")
        verb.add_argument("--queue", type=int, default=64, help="requests that may wait")
        verb.add_argument("--grace", type=int, default=10, metavar="SECONDS",
                          help="that running answers have when the server ends")  # fmt: skip
        verb.add_argument("--api-key", action="append", default=[],
                          help="a key that requests must bring; may be repeated")  # fmt: skip
        verb.add_argument("--api-key-file", metavar="FILE", help="keys, one in a line")
        verb.add_argument("--name", help="of the model, for clients")


def open_language_model(options: argparse.Namespace, slots: int = 1) -> LanguageModel:
    """The model of the arguments, with its plans made."""
    from svod.llm import load

    shown = Path(options.model).name if options.model else "the small model"
    with watch(f"loading {shown}"):
        model = load(options.model, context=options.context, slots=slots, guesses=options.guesses)
    with watch("preparing"):
        model.engine.prepare()
    return model


def sampling_of(options: argparse.Namespace) -> Sampling:
    """How tokens are drawn."""
    from svod.llm import Sampling

    names = [name.replace("-", "_") for name, *_ in _SAMPLING]
    return Sampling(**{name: getattr(options, name) for name in names})


def form_of(options: argparse.Namespace) -> Form | None:
    """What answers may look like."""
    from svod.llm.grammar import grammar_form, regex_form, schema_form

    given = [o for o in (options.json_schema, options.regex, options.grammar) if o is not None]
    if len(given) > 1:
        raise ArgumentError("an answer has one form: a schema, a pattern or a grammar")
    if options.json_schema is not None:
        try:
            schema: Any = json.loads(_text(options.json_schema))
        except ValueError as error:
            raise ArgumentError(f"{options.json_schema} holds no JSON: {error}") from None
        return schema_form(schema)
    if options.grammar is not None:
        return grammar_form(_text(options.grammar))
    return None if options.regex is None else regex_form(options.regex)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not read: {error}") from None
