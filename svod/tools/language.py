"""`svod chat` and `svod generate`: a language model at the command line.

Answers are written as they come. `chat` reads a line at a time from the terminal or a pipe; the
end of input ends it, an interrupt ends an answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from svod.base.errors import ArgumentError
from svod.tools.language_arguments import form_of, open_language_model, sampling_of
from svod.tools.report import Report

if TYPE_CHECKING:
    from svod.llm import LanguageModel, Piece

HELP = "/new begins again, /system TEXT sets the system message, /exit leaves; Ctrl-C stops"


def generate(options: argparse.Namespace) -> Report:
    """The text that follows a prompt."""
    prompt = options.prompt
    if prompt is None:
        if sys.stdin.isatty():
            raise ArgumentError("generate needs --prompt, or a prompt piped in")
        prompt = sys.stdin.read()
    sampling, form = sampling_of(options), form_of(options)
    model = open_language_model(options)
    tokens = model.tokenizer.encode(prompt)
    pieces = model.pieces(tokens, sampling, options.max_tokens, options.stop, form)
    if not options.json:
        sys.stdout.write(prompt)
    answer = _Answer(pieces, not options.json)
    data = {"prompt": prompt, "text": answer.text, **answer.numbers(len(tokens))}
    return Report(data, "")


def chat(options: argparse.Namespace) -> Report:
    """A conversation."""
    sampling, form = sampling_of(options), form_of(options)
    model = open_language_model(options)
    messages = _begun(options.system)
    is_talk = options.say is None and sys.stdin.isatty()
    if is_talk:
        print(f"{model.name}, {model.context} tokens of context. {HELP}", flush=True)
    numbers: dict[str, Any] = {}
    for said in options.say if options.say is not None else _lines(is_talk):
        if said.startswith("/"):
            if said in ("/exit", "/quit"):
                break
            messages = _commanded(said, messages)
            continue
        messages.append({"role": "user", "content": said})
        tokens = model.chat_tokens(messages)
        pieces = model.pieces(tokens, sampling, options.max_tokens, options.stop, form)
        answer = _Answer(pieces, not options.json)
        messages.append({"role": "assistant", "content": answer.text})
        numbers = answer.numbers(len(tokens))
        if is_talk:
            rate = numbers["tokens_per_second"]
            print(f"[{numbers['tokens']} tokens, {rate:.1f} a second]", flush=True)
    return Report({"messages": messages, **numbers}, "")


def _begun(system: str | None) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def _commanded(said: str, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation after a command."""
    command, _, rest = said.partition(" ")
    if command == "/new":
        return [m for m in messages[:1] if m["role"] == "system"]
    if command == "/system":
        return _begun(rest.strip())
    print(HELP, flush=True)
    return messages


def _lines(is_talk: bool) -> Iterator[str]:
    """What is said, line by line."""
    while True:
        try:
            line = input("> ") if is_talk else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not is_talk and not line:
            return
        if line.strip():
            yield line.strip()


class _Answer:
    """An answer that is written while it comes, with its times."""

    def __init__(self, pieces: Iterator[Piece], is_shown: bool) -> None:
        self.text, self.count, self.finish = "", 0, "stopped"
        start = time.perf_counter()
        self.first = self.whole = 0.0
        try:
            for piece in pieces:
                self.count += 1
                self.whole = time.perf_counter() - start
                self.first = self.first or self.whole
                self.text += piece.text
                self.finish = piece.finish or self.finish
                if is_shown and piece.text:
                    sys.stdout.write(piece.text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            pass
        if is_shown:
            print(flush=True)

    def numbers(self, prompt: int) -> dict[str, Any]:
        """Counts and rates."""
        rest = self.whole - self.first
        rate = (self.count - 1) / rest if rest > 0 else 0.0
        return {
            "prompt_tokens": prompt, "tokens": self.count, "finish": self.finish,
            "seconds_to_first": self.first, "tokens_per_second": rate,
        }  # fmt: skip


def bench(options: argparse.Namespace) -> Report:
    """Tokens per second of prompts and of answers, in the form of llama-bench."""
    from svod.base.threads import thread_budget

    if min(options.p, options.n, options.r) < 1:
        raise ArgumentError("a benchmark needs at least one token and one repetition")
    if options.context is None:
        options.context = None if options.model is None else max(options.p, options.n) + 64
    model = open_language_model(options)
    if max(options.p, options.n) >= model.context:
        raise ArgumentError(f"the context of {model.context} is too short: -p and -n, or --context")
    tests = (("pp", options.p, _prompt_rate), ("tg", options.n, _answer_rate))
    rows = []
    for kind, count, measure in tests:
        rates = [measure(model, count, seed) for seed in range(options.r + 1)][1:]
        mean = sum(rates) / len(rates)
        spread = (sum((r - mean) ** 2 for r in rates) / len(rates)) ** 0.5
        rows.append({"test": f"{kind}{count}", "mean": mean, "spread": spread, "rates": rates})
    data = {
        "model": model.name, "architecture": model.config.architecture,
        "weight_bytes": model.weight_bytes, "parameters": model.parameters,
        "threads": thread_budget().threads, "tests": rows,
        "gigabytes_per_second": rows[1]["mean"] * model.weight_bytes / 1e9,
    }  # fmt: skip
    return Report(data, _bench_text(data))


def _bench_text(data: dict[str, Any]) -> str:
    lines = [
        "| model | size | params | threads | test | t/s | GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    size = f"{data['weight_bytes'] / 2**20:.2f} MiB"
    parameters = f"{data['parameters'] / 1e6:.2f} M"
    for row in data["tests"]:
        rate = f"{row['mean']:.2f} ± {row['spread']:.2f}"
        read = f"{data['gigabytes_per_second']:.2f}" if row["test"].startswith("tg") else ""
        cells = (data["model"], size, parameters, data["threads"], row["test"], rate, read)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "size and GB/s: weights that a token reads, as the file keeps them"])


def _random_tokens(model: LanguageModel, count: int, seed: int) -> list[int]:
    import numpy as np

    random = np.random.default_rng([seed, count])
    return [int(token) for token in random.integers(0, len(model.tokenizer.tokens), count)]


def _prompt_rate(model: LanguageModel, count: int, seed: int) -> float:
    from svod.llm import Sampling

    prompt = _random_tokens(model, count, seed)
    start = time.perf_counter()
    list(model.engine.generate(prompt, Sampling(temperature=0.0), 1))
    return count / (time.perf_counter() - start)


def _answer_rate(model: LanguageModel, count: int, seed: int) -> float:
    from svod.llm import Sampling

    prompt = _random_tokens(model, 1, seed)
    steps = model.engine.generate(prompt, Sampling(temperature=0.0), count + 1)
    next(steps)
    start = time.perf_counter()
    made = sum(1 for _ in steps)
    return made / (time.perf_counter() - start)
