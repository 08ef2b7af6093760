"""The server's interface, called in the process; `test_serving` has real clients."""

from __future__ import annotations

import base64
import json
import random as randoms
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import svod

pytest.importorskip("starlette", reason="the server is made of it")
pytest.importorskip("httpx", reason="calls the server")

from starlette.testclient import TestClient

from svod.llm.server.app import BODY, Settings, application, page_html
from svod.llm.server.tools import CallReader

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"], "additionalProperties": False,
        },
    },
}  # fmt: skip
HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(scope="module")
def model() -> Any:
    return svod.llm.load(slots=3, context=256)


@pytest.fixture(scope="module")
def client(model: Any) -> Iterator[TestClient]:
    with TestClient(application(model)) as found:
        yield found


def post(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(client: TestClient, path: str, **body: Any) -> list[Any]:
    answer = client.post(f"/v1/{path}", json={**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_chat_whole_and_streamed(client: TestClient) -> None:
    whole = post(client, "chat/completions", messages=HELLO, temperature=0)
    choice = whole["choices"][0]
    assert choice["message"]["content"] == "Hello! How can I help you?"
    assert choice["finish_reason"] == "stop"
    used = whole["usage"]
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]
    found = events(client, "chat/completions", messages=HELLO, temperature=0,
                   stream_options={"include_usage": True})  # fmt: skip
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in found if e["choices"])
    assert text == choice["message"]["content"]
    assert found[-1]["usage"] == used


def test_the_end_of_an_answer(client: TestClient) -> None:
    cut = post(client, "chat/completions", messages=HELLO, temperature=0, max_tokens=3)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 3
    stopped = post(client, "chat/completions", messages=HELLO, temperature=0, stop=" can")
    assert stopped["choices"][0]["message"]["content"] == "Hello! How"
    assert stopped["choices"][0]["finish_reason"] == "stop"


def test_several_answers_have_seeds_of_their_own(client: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": 3, "n": 3}
    first, again = (post(client, "chat/completions", **body)["choices"] for _ in range(2))
    texts = [choice["message"]["content"] for choice in first]
    assert texts == [choice["message"]["content"] for choice in again]
    assert len(set(texts)) > 1
    parts = ["", "", ""]
    for event in events(client, "chat/completions", **body):
        for choice in event["choices"]:
            parts[choice["index"]] += choice["delta"].get("content", "")
    assert parts == texts


def test_probabilities_of_tokens(client: TestClient) -> None:
    found = post(client, "chat/completions", messages=HELLO, temperature=0, logprobs=True,
                 top_logprobs=2)["choices"][0]["logprobs"]["content"]  # fmt: skip
    assert bytes(b for entry in found for b in entry["bytes"]) == b"Hello! How can I help you?"
    assert all(e["top_logprobs"][0]["logprob"] == e["logprob"] < 1e-6 for e in found)
    plain = post(client, "completions", prompt="Hello", max_tokens=2, temperature=0, logprobs=1)
    assert len(plain["choices"][0]["logprobs"]["token_logprobs"]) == 2


def test_completions_of_several_prompts(client: TestClient, model: Any) -> None:
    found = post(client, "completions", prompt=["Hello", "What"], max_tokens=4, temperature=0,
                 echo=True)["choices"]  # fmt: skip
    for choice, prompt in zip(found, ("Hello", "What"), strict=True):
        greedy = svod.llm.Sampling(temperature=0.0)
        expected = "".join(model.generate(prompt, sampling=greedy, max_tokens=4))
        assert choice["text"] == prompt + expected
    tokens = model.tokenizer.encode("Hello")
    same = post(client, "completions", prompt=tokens, max_tokens=4, temperature=0, echo=True)
    assert same["choices"][0]["text"] == found[0]["text"]


def test_a_tool_is_called_where_the_model_or_the_request_wants_it(client: TestClient) -> None:
    asked = [{"role": "user", "content": "What is the weather in Rome?"}]
    for choice in ("auto", "required", {"type": "function", "function": {"name": "weather"}}):
        found = post(client, "chat/completions", messages=asked, temperature=0, tools=[WEATHER],
                     tool_choice=choice)["choices"][0]  # fmt: skip
        assert found["finish_reason"] == "tool_calls"
        (call,) = found["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert list(json.loads(call["function"]["arguments"])) == ["city"]
    streamed = events(client, "chat/completions", messages=asked, temperature=0, tools=[WEATHER])
    deltas = [e["choices"][0]["delta"] for e in streamed if e["choices"]]
    assert sum(len(d.get("tool_calls", ())) for d in deltas) == 1
    result = {"role": "tool", "content": "7 degrees, rainy", "tool_call_id": call["id"]}
    answer = [*asked, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    told = post(client, "chat/completions", messages=answer, temperature=0, tools=[WEATHER])
    assert told["choices"][0]["finish_reason"] == "stop"


def test_calls_are_found_wherever_the_text_is_cut() -> None:
    text = 'a<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>b<tool_call>no</tool_call><'
    random = randoms.Random(0)
    for _ in range(50):
        reader, place, shown, calls = CallReader(), 0, "", []
        while place < len(text):
            size = random.randint(1, 9)
            more, found = reader.add(text[place : place + size])
            shown, calls, place = shown + more, calls + found, place + size
        assert shown + reader.finish() == "ab<tool_call>no</tool_call><"
        assert [(c.name, c.arguments) for c in calls] == [("f", '{"x": 1}')]


def test_answers_of_a_form(client: TestClient) -> None:
    schema = {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"], "additionalProperties": False,
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "pair", "schema": schema}}
    found = post(client, "chat/completions", messages=HELLO, seed=2, response_format=form)
    assert json.loads(found["choices"][0]["message"]["content"])["b"] in ("x", "y")
    found = post(client, "completions", prompt="Hello", seed=2, regex="(ha){2}!")
    assert found["choices"][0]["text"] == "haha!"
    answer = client.post("/v1/completions", json={"prompt": "x", "grammar": "root ::= "})
    assert answer.status_code in (200, 400)


def test_responses_whole_and_streamed(client: TestClient) -> None:
    found = post(client, "responses", input="Hello!", temperature=0)
    assert found["output"][0]["content"][0]["text"] == "Hello! How can I help you?"
    assert found["status"] == "completed"
    streamed = events(client, "responses", input=HELLO, temperature=0)
    assert [e["sequence_number"] for e in streamed] == list(range(len(streamed)))
    assert streamed[0]["type"] == "response.created"
    assert streamed[-1]["type"] == "response.completed"
    text = "".join(e["delta"] for e in streamed if e["type"] == "response.output_text.delta")
    assert text == streamed[-1]["response"]["output"][0]["content"][0]["text"]
    tool = {"type": "function", **WEATHER["function"]}
    called = post(client, "responses", input="Hello!", temperature=0, tools=[tool],
                  tool_choice="required")["output"]  # fmt: skip
    assert [item["type"] for item in called] == ["function_call"]


def test_embeddings(client: TestClient) -> None:
    found = post(client, "embeddings", input=["Hello there", "cat"])
    vectors = [np.array(entry["embedding"]) for entry in found["data"]]
    assert np.allclose([v @ v for v in vectors], 1, atol=1e-5)
    packed = post(client, "embeddings", input="cat", encoding_format="base64")["data"][0]
    again = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4")
    assert np.allclose(again, vectors[1])


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"),
        ({"messages": HELLO, "temperature": 9}, "temperature"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "n": 1000}, "n"), ({"messages": HELLO, "stop": [1]}, "stop"),
        ({"messages": HELLO, "strange": 1}, "strange"),
        ({"messages": HELLO, "logit_bias": [1]}, "logit_bias"),
        ({"messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HELLO, "tools": [{}]}, "tools"),
        ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        ({"messages": HELLO, "response_format": {"type": "xml"}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, None),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_body_is_said(
    client: TestClient, body: dict[str, Any], field: str | None
) -> None:
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == field and error["message"]


def test_requests_that_are_none(client: TestClient) -> None:
    path = "/v1/chat/completions"
    long = client.post(path, json={"messages": [{"role": "user", "content": "x" * 9000}]})
    assert long.status_code == 400
    assert long.json()["error"]["code"] == "context_length_exceeded"
    kind = {"content-type": "application/json"}
    assert client.post(path, content=b"{", headers=kind).status_code == 400
    assert client.post(path, content=b"[" * 100_000, headers=kind).status_code == 400
    assert client.post(path, content=b"{}").status_code == 415
    assert client.post(path, content=b" " * (BODY + 1), headers=kind).status_code == 413
    assert client.get(path).status_code == 405
    assert client.get("/v1/nothing").status_code == 404
    assert client.get("/v1/models/other").status_code == 404


def test_random_bodies_are_clean_errors(client: TestClient) -> None:
    random = randoms.Random(4)
    values: list[Any] = [None, True, -1, 1e300, "x", "", [], {}, [[]], [1], {"a": 1}, "é" * 9]
    names = ["messages", "prompt", "input", "temperature", "n", "stop", "tools", "stream", "seed",
             "logit_bias", "response_format", "tool_choice", "max_tokens", "text"]  # fmt: skip
    paths = ("chat/completions", "completions", "responses", "embeddings")
    for _ in range(300):
        body = {random.choice(names): random.choice(values) for _ in range(random.randrange(5))}
        body["max_output_tokens" if random.random() < 0.1 else "max_tokens"] = 2
        if random.random() < 0.5:
            body["messages"] = [{random.choice(["role", "content", "x"]): random.choice(values)}]
        answer = client.post(f"/v1/{random.choice(paths)}", json=body)
        assert answer.status_code in (200, 400), (body, answer.text)
    assert client.get("/health").json()["running"] == 0


def test_keys_and_names_of_the_host(model: Any) -> None:
    with TestClient(application(model, Settings(("secret",), ("testserver",)))) as client:
        assert client.get("/v1/models").status_code == 401
        wrong = {"authorization": "Bearer sécret".encode()}
        assert client.get("/v1/models", headers=wrong).status_code == 401
        right = {"authorization": "Bearer secret"}
        assert client.get("/v1/models", headers=right).json()["data"][0]["id"] == model.name
        assert client.get("/").status_code == client.get("/health").status_code == 200
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403


def test_a_full_queue_turns_requests_away(model: Any) -> None:
    with TestClient(application(model, Settings(queue=0))) as client:
        answer = client.post("/v1/chat/completions", json={"messages": HELLO, "n": 8})
        assert answer.status_code == 429
        assert answer.json()["error"]["type"] == "rate_limit_error"


def test_metrics_count_what_happened(model: Any) -> None:
    with TestClient(application(model)) as client:
        used = post(client, "chat/completions", messages=HELLO, temperature=0)["usage"]
        deadline = time.monotonic() + 60
        while "svod_running 0" not in (text := client.get("/metrics").text):
            assert time.monotonic() < deadline, "the slot of an answer that has ended is free soon"
            time.sleep(0.01)
        lines = text.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert int(found["svod_answer_tokens_total"]) == used["completion_tokens"]
    assert int(found["svod_prompt_tokens_total"]) == used["prompt_tokens"]
    assert found['svod_requests_total{path="/v1/chat/completions",status="200"}'] == "1"
    assert found["svod_running"] == "0"
    assert found["svod_answer_seconds_count"] == "1"


def test_the_page_is_one_piece_that_asks_for_nothing(client: TestClient) -> None:
    html = page_html()
    assert "<!-- page" not in html and "<script>" in html and "http" not in html.split("<body>")[0]
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
