"""Bodies of requests to what the model is asked: prompts, how to draw tokens, forms, tools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from svod.llm.errors import RequestError
from svod.llm.grammar import Form, grammar_form, json_form, regex_form, schema_form
from svod.llm.model import LanguageModel
from svod.llm.sampling import Sampling
from svod.llm.server.fields import FieldError, Fields
from svod.llm.server.tools import checked_tools, tool_form

CHOICES = 16  # answers to one prompt
PROMPTS = 64  # prompts or texts of one request
_LARGE = 1 << 30


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: answers to each prompt, in order."""

    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    form: Form | None = None
    choices: int = 1
    is_stream: bool = False
    has_usage: bool = True  # in a stream, whether its last event tells the usage
    has_logprobs: bool = False
    reads_tools: bool = False
    echoes: tuple[str, ...] = ()  # what comes before each answer

    def sampling_of(self, choice: int) -> Sampling:
        """Several answers to a prompt have seeds of their own."""
        seed = self.sampling.seed
        if seed is None or not choice:
            return self.sampling
        return replace(self.sampling, seed=(seed + choice) % (1 << 64))


def chat_request(body: Any, model: LanguageModel) -> Asked:
    """A body of `/v1/chat/completions`."""
    fields = Fields(body)
    messages = checked_messages(fields.value("messages"))
    tools, choice = _tools(fields)
    options = fields.value("chat_template_kwargs", {})
    if not isinstance(options, dict) or {"messages", "tools"} & options.keys():
        raise FieldError("chat_template_kwargs", "names with values that the template knows")
    form = _form(fields)
    if form is None and tools and choice not in ("auto", "none"):
        form = tool_form(tools, None if choice == "required" else choice)
    has_logprobs = fields.flag("logprobs")
    top = fields.whole("top_logprobs", 0, 0, 20) or 0
    if top and not has_logprobs:
        raise FieldError("top_logprobs", "needs logprobs to be true")
    sampling = _sampling(fields, top)
    limit = fields.whole("max_completion_tokens", None, 1, _LARGE)
    limit = limit or fields.whole("max_tokens", None, 1, _LARGE)
    fields.whole("max_tokens", None, 1, _LARGE)
    stop, choices = fields.stops(), fields.whole("n", 1, 1, CHOICES)
    is_stream, has_usage = _stream(fields)
    fields.finish()
    shown = tools if choice != "none" else []
    prompt = model.chat_tokens(messages, tools=shown or None, **options)
    model.engine.checked(prompt)
    return Asked(
        (tuple(prompt),), sampling, limit, stop, form, choices or 1, is_stream, has_usage,
        has_logprobs, bool(shown),
    )  # fmt: skip


def completion_request(body: Any, model: LanguageModel) -> Asked:
    """A body of `/v1/completions`."""
    fields = Fields(body)
    prompts = texts_or_tokens(fields, "prompt", model)
    top = fields.whole("logprobs", None, 0, 20)
    sampling = _sampling(fields, top or 0)
    limit = fields.whole("max_tokens", 16, 1, _LARGE)
    stop, choices = fields.stops(), fields.whole("n", 1, 1, CHOICES)
    form = _form(fields)
    echoes = [model.tokenizer.decode(p) for p in prompts] if fields.flag("echo") else []
    is_stream, has_usage = _stream(fields)
    fields.finish()
    for prompt in prompts:
        model.engine.checked(prompt)
    return Asked(
        tuple(map(tuple, prompts)), sampling, limit, stop, form, choices or 1, is_stream,
        has_usage, top is not None, echoes=tuple(echoes),
    )  # fmt: skip


def response_request(body: Any, model: LanguageModel) -> Asked:
    """A body of `/v1/responses`."""
    fields = Fields(body)
    messages = _input_messages(fields.value("input"))
    if (instructions := fields.text("instructions")) is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    if fields.value("previous_response_id") is not None:
        raise FieldError("previous_response_id", "answers are not kept: send the whole input")
    if fields.flag("background"):
        raise FieldError("background", "answers are not made in the background")
    tools, choice = _tools(fields)
    about = fields.value("text", {})
    about = about.get("format", {}) if isinstance(about, dict) else None
    if not isinstance(about, dict):
        raise FieldError("text", "an object with a format")
    kind = about.get("type", "text")
    form = None if kind == "text" else _format_form("text", kind, about)
    if form is None and tools and choice not in ("auto", "none"):
        form = tool_form(tools, None if choice == "required" else choice)
    sampling = _sampling(fields, 0)
    limit = fields.whole("max_output_tokens", None, 1, _LARGE)
    is_stream = fields.flag("stream")
    fields.finish()
    shown = tools if choice != "none" else []
    prompt = model.chat_tokens(checked_messages(messages), tools=shown or None)
    model.engine.checked(prompt)
    return Asked(
        (tuple(prompt),), sampling, limit, form=form, is_stream=is_stream, reads_tools=bool(shown)
    )


def texts_or_tokens(fields: Fields, name: str, model: LanguageModel) -> list[list[int]]:
    """A text, several, or the same as tokens."""
    found = fields.value(name)
    is_tokens = isinstance(found, list) and bool(found) and _is_tokens(found)
    several = found if isinstance(found, list) and not is_tokens else [found]
    if not several or len(several) > PROMPTS:
        raise FieldError(name, f"from one to {PROMPTS} texts")
    prompts = []
    for each in several:
        if isinstance(each, str):
            prompts.append(model.tokenizer.encode(each))
        elif isinstance(each, list) and each and _is_tokens(each):
            prompts.append(each)
        else:
            raise FieldError(name, f"{each!r:.60} is neither a text nor a list of tokens")
    return prompts


def _is_tokens(values: list[Any]) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) for v in values)


def checked_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts."""
    if not isinstance(messages, list) or not messages:
        raise FieldError("messages", "a list of messages")
    found = []
    for message in messages:
        if not isinstance(message, dict):
            raise FieldError("messages", f"{message!r:.60} is not a message")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(_part_text(part) for part in content)
        if content is not None and not isinstance(content, str):
            raise FieldError("messages", f"the content {content!r:.60} is not a text")
        calls = message.get("tool_calls") or []
        is_known = isinstance(calls, list) and all(
            isinstance(call, dict) and isinstance(call.get("function"), dict)
            and isinstance(call["function"].get("name"), str)
            and isinstance(call["function"].get("arguments", ""), (str, dict))
            for call in calls
        )  # fmt: skip
        if not is_known:
            raise FieldError("messages", "tool_calls are calls of functions with arguments")
        if content is None and not calls:
            raise FieldError("messages", "a message has a content")
        found.append({**message, "content": content if content is not None else ""})
    return found


def _part_text(part: Any) -> str:
    kinds = ("text", "input_text", "output_text")
    if isinstance(part, dict) and part.get("type") in kinds and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else part
    raise FieldError("messages", f"parts of a content are texts, not {kind!r:.40}")


def _input_messages(given: Any) -> list[dict[str, Any]]:
    """Input of a response: a text, or messages, calls and what they gave."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise FieldError("input", "a text, or a list of messages")
    found: list[dict[str, Any]] = []
    for item in given:
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            found.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call":
            call = {"name": item.get("name"), "arguments": item.get("arguments", "")}
            entry = {"id": item.get("call_id"), "type": "function", "function": call}
            found.append({"role": "assistant", "content": "", "tool_calls": [entry]})
        elif kind == "function_call_output":
            found.append({"role": "tool", "content": item.get("output")})
        elif kind != "reasoning":
            raise FieldError("input", f"{kind!r:.40} is not known")
    return found


def _tools(fields: Fields) -> tuple[list[dict[str, Any]], str]:
    """Tools, and what is said about their use: auto, none, required, or a name."""
    tools = checked_tools(fields.value("tools", []))
    choice = fields.value("tool_choice", "auto")
    if isinstance(choice, dict):
        inner = choice.get("function", choice)
        choice = inner.get("name") if isinstance(inner, dict) else None
        if choice not in [tool["function"]["name"] for tool in tools]:
            raise FieldError("tool_choice", f"{choice!r:.60} is none of the tools")
    elif choice not in ("auto", "none", "required"):
        raise FieldError("tool_choice", f"{choice!r:.60} is not auto, none, required or a tool")
    if choice == "required" and not tools:
        raise FieldError("tool_choice", "a call is required, but there are no tools")
    return tools, str(choice)


def _stream(fields: Fields) -> tuple[bool, bool]:
    is_stream = fields.flag("stream")
    options = fields.value("stream_options", {})
    if not isinstance(options, dict):
        raise FieldError("stream_options", "an object")
    return is_stream, not is_stream or options.get("include_usage") is True


def _sampling(fields: Fields, logprobs: int) -> Sampling:
    bias = fields.value("logit_bias", {})
    try:
        known = {int(token): float(value) for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise FieldError("logit_bias", "an object of tokens and numbers") from None
    number = fields.number
    return Sampling(
        temperature=number("temperature", 1.0, 0, 2), top_p=number("top_p", 1.0, 1e-6, 1),
        top_k=fields.whole("top_k", 0, 0, _LARGE) or 0, min_p=number("min_p", 0.0, 0, 1),
        repetition_penalty=number("repetition_penalty", 1.0, 0.01, 10),
        presence_penalty=number("presence_penalty", 0.0, -2, 2),
        frequency_penalty=number("frequency_penalty", 0.0, -2, 2),
        dry_multiplier=number("dry_multiplier", 0.0, 0, 10),
        dry_base=number("dry_base", 1.75, 1, 10),
        dry_allowed=fields.whole("dry_allowed_length", 2, 1, 1000) or 2,
        xtc_probability=number("xtc_probability", 0.0, 0, 1),
        xtc_threshold=number("xtc_threshold", 0.1, 0, 1),
        seed=fields.whole("seed", None, 0, (1 << 64) - 1), logit_bias=known, logprobs=logprobs,
    )  # fmt: skip


def _form(fields: Fields) -> Form | None:
    found = fields.value("response_format")
    grammar, pattern = fields.text("grammar"), fields.text("regex")
    if sum(x is not None for x in (found, grammar, pattern)) > 1:
        raise FieldError("response_format", "an answer has one form")
    if grammar is not None:
        return grammar_form(grammar)
    if pattern is not None:
        return regex_form(pattern)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise FieldError("response_format", "an object with a type")
    kind = found.get("type")
    inner = found.get("json_schema", {}) if kind == "json_schema" else found
    return None if kind == "text" else _format_form("response_format", kind, inner)


def _format_form(field: str, kind: Any, about: Any) -> Form:
    if kind == "json_object":
        return json_form()
    if kind != "json_schema":
        raise FieldError(field, f"the type {kind!r:.40} is not known")
    if not isinstance(about, dict) or "schema" not in about:
        raise FieldError(field, "a json_schema has a schema")
    try:
        return schema_form(about["schema"])
    except RequestError as error:
        raise FieldError(field, str(error)) from None
