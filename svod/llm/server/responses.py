"""Answers in the form of `/v1/responses`: an object of items, or events that build it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from svod.llm.model import LanguageModel
from svod.llm.server.answers import Part, event, parts
from svod.llm.server.reading import Asked
from svod.llm.server.serving_thread import Worker
from svod.llm.server.tools import Call


class ResponseForm:
    """The objects of one response."""

    def __init__(self, model: LanguageModel, asked: Asked) -> None:
        self.asked = asked
        self.message_id = f"msg_{secrets.token_hex(12)}"
        self.head = {
            "id": f"resp_{secrets.token_hex(12)}", "object": "response",
            "created_at": int(time.time()), "model": model.name, "error": None,
            "incomplete_details": None, "instructions": None, "metadata": {},
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "store": False,
            "temperature": asked.sampling.temperature, "top_p": asked.sampling.top_p,
            "max_output_tokens": asked.max_tokens, "previous_response_id": None,
        }  # fmt: skip

    def begun(self) -> dict[str, Any]:
        return {**self.head, "status": "in_progress", "output": [], "usage": None}

    def whole(self, found: list[Part]) -> dict[str, Any]:
        """The finished response."""
        text = "".join(part.text for part in found)
        calls = [call for part in found for call in part.calls]
        tokens = sum(len(part.pieces) for part in found)
        is_cut = bool(found) and found[-1].finish == "length"
        output = [self.message(text)] if text or not calls else []
        prompt = len(self.asked.prompts[0])
        return {
            **self.head, "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [*output, *(call_item(call) for call in calls)],
            "usage": {
                "input_tokens": prompt, "output_tokens": tokens, "total_tokens": prompt + tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }  # fmt: skip

    def message(self, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [text_part(text)]
        status = "in_progress" if text is None else "completed"
        return {
            "type": "message", "id": self.message_id, "role": "assistant", "status": status,
            "content": content,
        }  # fmt: skip


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(call: Call) -> dict[str, Any]:
    return {
        "type": "function_call", "id": f"fc_{call.id[5:]}", "call_id": call.id,
        "name": call.name, "arguments": call.arguments, "status": "completed",
    }  # fmt: skip


async def response_events(worker: Worker, asked: Asked, form: ResponseForm) -> AsyncIterator[str]:
    """The events of a streamed response."""
    number = -1

    def made(name: str, **data: Any) -> str:
        nonlocal number
        number += 1
        return event({"type": name, "sequence_number": number, **data}, name)

    found: list[Part] = []
    place, is_open, text = 0, False, ""
    where = {"item_id": form.message_id, "output_index": 0, "content_index": 0}

    def closed() -> list[str]:
        return [
            made("response.output_text.done", **where, text=text, logprobs=[]),
            made("response.content_part.done", **where, part=text_part(text)),
            made("response.output_item.done", output_index=0, item=form.message(text)),
        ]

    async with aclosing(parts(worker, asked, 0)) as several:  # type: ignore[type-var]
        async for part in several:
            if not found:
                yield made("response.created", response=form.begun())
                yield made("response.in_progress", response=form.begun())
            found.append(part)
            if part.text:
                if not is_open:
                    is_open = True
                    yield made("response.output_item.added", output_index=0,
                               item=form.message(None))  # fmt: skip
                    yield made("response.content_part.added", **where, part=text_part(""))
                text += part.text
                yield made("response.output_text.delta", **where, delta=part.text, logprobs=[])
            for call in part.calls:
                place += 1
                at = {"output_index": place - (not is_open)}
                item = call_item(call)
                begun = {**item, "arguments": "", "status": "in_progress"}
                yield made("response.output_item.added", **at, item=begun)
                yield made("response.function_call_arguments.delta", **at, item_id=item["id"],
                           delta=call.arguments)  # fmt: skip
                yield made("response.function_call_arguments.done", **at, item_id=item["id"],
                           arguments=call.arguments, name=call.name)  # fmt: skip
                yield made("response.output_item.done", **at, item=item)
    if is_open:
        for each in closed():
            yield each
    whole = form.whole(found)
    yield made(f"response.{whole['status']}", response=whole)
