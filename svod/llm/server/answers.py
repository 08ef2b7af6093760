"""Answers in the forms of chat completions and completions, whole and as events of a stream."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from svod.llm.model import LanguageModel, Piece
from svod.llm.server.reading import Asked
from svod.llm.server.serving_thread import Worker
from svod.llm.server.tools import Call, CallReader


@dataclass(slots=True)
class Part:
    """What came of one answer at once."""

    index: int
    text: str
    calls: list[Call] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    finish: str | None = None


def event(data: Any, name: str | None = None) -> str:
    """One event of a stream."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


async def parts(worker: Worker, asked: Asked, index: int) -> AsyncIterator[Part]:
    """The parts of one of the answers."""
    prompt = asked.prompts[index // asked.choices]
    sampling = asked.sampling_of(index % asked.choices)
    reader = CallReader() if asked.reads_tools else None
    has_called = False
    found = worker.pieces(prompt, sampling, asked.max_tokens, asked.stop, asked.form)
    async with aclosing(found) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            text, calls = piece.text, []
            if reader is not None:
                text, calls = reader.add(text)
                if piece.finish is not None:
                    text += reader.finish()
            has_called |= bool(calls)
            finish = piece.finish
            if finish == "stop" and has_called:
                finish = "tool_calls"
            yield Part(index, text, calls, [piece], finish)


async def gathered(worker: Worker, asked: Asked) -> list[Part]:
    """All answers, whole."""

    async def whole(index: int) -> Part:
        found = Part(index, "")
        async with aclosing(parts(worker, asked, index)) as several:  # type: ignore[type-var]
            async for part in several:
                found.text += part.text
                found.calls += part.calls
                found.pieces += part.pieces
                found.finish = part.finish
        return found

    async with asyncio.TaskGroup() as group:
        count = len(asked.prompts) * asked.choices
        tasks = [group.create_task(whole(index)) for index in range(count)]
    return [task.result() for task in tasks]


async def merged(worker: Worker, asked: Asked) -> AsyncIterator[Part]:
    """Parts of all answers as they come."""
    count = len(asked.prompts) * asked.choices
    if count == 1:
        async with aclosing(parts(worker, asked, 0)) as several:  # type: ignore[type-var]
            async for part in several:
                yield part
        return
    found: asyncio.Queue[Part | None] = asyncio.Queue()

    async def run(index: int) -> None:
        async with aclosing(parts(worker, asked, index)) as several:  # type: ignore[type-var]
            async for part in several:
                found.put_nowait(part)
        found.put_nowait(None)

    tasks = [asyncio.create_task(run(index)) for index in range(count)]
    try:
        while count:
            waiting = asyncio.create_task(found.get())
            done, _ = await asyncio.wait([waiting, *tasks], return_when="FIRST_COMPLETED")
            for task in tasks:
                if task in done and task.exception() is not None:
                    waiting.cancel()
                    await task
            tasks = [task for task in tasks if not task.done()]
            part = await waiting
            if part is None:
                count -= 1
            else:
                yield part
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ChatForm:
    """The objects of `/v1/chat/completions`."""

    def __init__(self, model: LanguageModel, asked: Asked) -> None:
        self.model, self.asked = model, asked
        self.head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}", "object": "chat.completion",
            "created": int(time.time()), "model": model.name, "system_fingerprint": None,
        }  # fmt: skip

    def whole(self, found: list[Part]) -> dict[str, Any]:
        choices = []
        for part in found:
            message: dict[str, Any] = {"role": "assistant", "content": part.text, "refusal": None}
            if part.calls:
                message["content"] = part.text or None
                message["tool_calls"] = [call_object(call) for call in part.calls]
            choices.append({
                "index": part.index, "message": message, "finish_reason": part.finish,
                "logprobs": self._logprobs(part),
            })  # fmt: skip
        return {**self.head, "choices": choices, "usage": usage(self.asked, found)}

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if not self.asked.has_logprobs:
            return None
        return {"content": [_chat_logprob(self.model, p) for p in part.pieces], "refusal": None}

    def first(self, index: int) -> list[dict[str, Any]]:
        return [self._chunk(index, {"role": "assistant", "content": ""}, None)]

    def chunk(self, part: Part, calls_before: int) -> list[dict[str, Any]]:
        delta: dict[str, Any] = {}
        if part.text or (part.pieces and self.asked.has_logprobs):
            delta["content"] = part.text
        if part.calls:
            delta["tool_calls"] = [
                {"index": calls_before + n, **call_object(call)}
                for n, call in enumerate(part.calls)
            ]
        if not delta and part.finish is None:
            return []
        return [self._chunk(part.index, delta, part.finish, self._logprobs(part))]

    def _chunk(
        self, index: int, delta: dict[str, Any], finish: str | None, logprobs: Any = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return {**self.head, "object": "chat.completion.chunk", "choices": [choice]}

    def last(self, used: dict[str, Any]) -> dict[str, Any]:
        return {**self.head, "object": "chat.completion.chunk", "choices": [], "usage": used}


class CompletionForm:
    """The objects of `/v1/completions`."""

    def __init__(self, model: LanguageModel, asked: Asked) -> None:
        self.model, self.asked = model, asked
        self.head = {
            "id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion",
            "created": int(time.time()), "model": model.name,
        }  # fmt: skip

    def _echo(self, index: int) -> str:
        return self.asked.echoes[index // self.asked.choices] if self.asked.echoes else ""

    def whole(self, found: list[Part]) -> dict[str, Any]:
        choices = [
            {
                "index": p.index, "text": self._echo(p.index) + p.text, "finish_reason": p.finish,
                "logprobs": self._logprobs(p, len(self._echo(p.index))),
            }
            for p in found
        ]  # fmt: skip
        return {**self.head, "choices": choices, "usage": usage(self.asked, found)}

    def _logprobs(self, part: Part, start: int) -> dict[str, Any] | None:
        if not self.asked.has_logprobs:
            return None
        names = [token_text(self.model, p.token) for p in part.pieces]
        offsets = [start + sum(map(len, names[:n])) for n in range(len(names))]
        likeliest = [
            {token_text(self.model, t): value for t, value in p.likeliest} for p in part.pieces
        ]
        return {
            "tokens": names, "token_logprobs": [p.logprob for p in part.pieces],
            "top_logprobs": likeliest, "text_offset": offsets,
        }  # fmt: skip

    def first(self, index: int) -> list[dict[str, Any]]:
        echo = self._echo(index)
        return [self._chunk(index, echo, None, None)] if echo else []

    def chunk(self, part: Part, calls_before: int) -> list[dict[str, Any]]:
        if not part.text and part.finish is None and not self.asked.has_logprobs:
            return []
        return [self._chunk(part.index, part.text, part.finish, self._logprobs(part, 0))]

    def _chunk(self, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        choice = {"index": index, "text": text, "finish_reason": finish, "logprobs": logprobs}
        return {**self.head, "choices": [choice]}

    def last(self, used: dict[str, Any]) -> dict[str, Any]:
        return {**self.head, "choices": [], "usage": used}


async def events(
    worker: Worker, asked: Asked, form: ChatForm | CompletionForm
) -> AsyncIterator[str]:
    """The events of a stream, from the first token to `[DONE]`."""
    begun: set[int] = set()
    calls = [0] * (len(asked.prompts) * asked.choices)
    found: list[Part] = []
    async with aclosing(merged(worker, asked)) as several:  # type: ignore[type-var]
        async for part in several:
            chunks = [] if part.index in begun else form.first(part.index)
            begun.add(part.index)
            for chunk in [*chunks, *form.chunk(part, calls[part.index])]:
                yield event(chunk)
            calls[part.index] += len(part.calls)
            found.append(part)
    if asked.has_usage:
        yield event(form.last(usage(asked, found)))
    yield "data: [DONE]\n\n"


def usage(asked: Asked, found: list[Part]) -> dict[str, Any]:
    """How many tokens went in and came out."""
    prompt = sum(map(len, asked.prompts))
    answer = sum(len(part.pieces) for part in found)
    return {
        "prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer
    }  # fmt: skip


def call_object(call: Call) -> dict[str, Any]:
    return {
        "id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }  # fmt: skip


def token_text(model: LanguageModel, token: int) -> str:
    """A token as text; bytes that are no character by themselves are shown as U+FFFD."""
    tokens = model.tokenizer.tokens
    if token >= len(tokens):
        return ""
    return model.tokenizer.content(token).decode("utf-8", "replace") or tokens[token]


def _chat_logprob(model: LanguageModel, piece: Piece) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> dict[str, Any]:
        is_known = token < len(model.tokenizer.tokens)
        content = model.tokenizer.content(token) if is_known else b""
        return {"token": token_text(model, token), "logprob": logprob, "bytes": list(content)}

    top = [entry(token, logprob) for token, logprob in piece.likeliest]
    return {**entry(piece.token, piece.logprob), "top_logprobs": top}
