"""Chat templates: messages to the text of a prompt, by Jinja in a sandbox.

A template is a program of the model's file. It runs in a sandbox that cannot reach attributes of
Python or change what it gets. What users wrote must not become control tokens: a mark, a character
that no message has, is put into every name of one in their texts, and the tokenizer drops it after
it has looked for control tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, NoReturn

from svod.llm.errors import ModelFileError, RequestError
from svod.llm.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
_MARKS = range(0xE000, 0xF8FF)  # characters for private use


class ChatTemplate:
    """A template, ready to be filled."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        try:
            jinja2, sandbox = import_module("jinja2"), import_module("jinja2.sandbox")
        except ImportError:
            raise RequestError("chat templates need Jinja: pip install 'svod[llm]'") from None
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _as_json
        environment.globals["raise_exception"] = _refused
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelFileError(f"the chat template is not well-formed: {error}") from None
        self._names = {
            f"{name}_token": "" if number is None else tokenizer.tokens[number]
            for name, number in (("bos", tokenizer.bos), ("eos", tokenizer.eos))
        }
        names = sorted(tokenizer.control, key=len, reverse=True)
        if names and len(names[-1]) < 2:
            raise ModelFileError(f"the control token {names[-1]!r} cannot be told from text")
        self._taken = frozenset("".join(names))
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else None

    def rendered(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> tuple[str, str]:
        """The text of a prompt, and the mark that is in it where users wrote control tokens."""
        _check(messages)
        used = set(json.dumps([messages, options], ensure_ascii=False, default=str))
        used |= self._taken
        mark = next((chr(n) for n in _MARKS if chr(n) not in used), None)
        if mark is None:
            raise RequestError("the messages use every character for private use")
        given = {"add_generation_prompt": True, "tools": None, **self._names}
        given |= {name: self._marked(value, mark) for name, value in options.items()}
        marked = [
            {k: v if k == "role" else self._marked(v, mark) for k, v in message.items()}
            for message in messages
        ]
        try:
            return self._template.render(messages=marked, **given), mark
        except RequestError:
            raise
        except Exception as error:  # a template is a program: it can fail in any way
            raise RequestError(f"the chat template failed: {error!r:.200}") from None

    def _marked(self, value: Any, mark: str) -> Any:
        if isinstance(value, str) and self._pattern is not None:
            # Names may overlap: each is broken after its first character, and the next may begin
            # right there.
            parts, place = [], 0
            while found := self._pattern.search(value, place):
                parts += [value[place : found.start() + 1], mark]
                place = found.start() + 1
            return "".join([*parts, value[place:]])
        if isinstance(value, Mapping):
            return {self._marked(k, mark): self._marked(v, mark) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._marked(item, mark) for item in value]
        return value


def _check(messages: Any) -> None:
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RequestError("a chat is a list of messages")
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise RequestError(f"a message is an object with a role of {', '.join(ROLES)}")
        if "content" not in message and "tool_calls" not in message:
            raise RequestError("a message has a content")


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refused(text: Any) -> NoReturn:
    raise RequestError(f"the chat template refuses this: {text}")
