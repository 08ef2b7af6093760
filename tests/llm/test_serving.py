"""A server in a process of its own with the official client: many at once, some that leave."""

from __future__ import annotations

import json
import os
import random as randoms
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.llm.serving import served

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
CLIENTS = 32
SAID = ("Hello!", "Tell me a story about a fox.", "Count from 3 to 9.", "Spell window.",
        "What is 3 plus 4?", "Name three animals.", "Tell me a story.", "Who are you?")  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("uvicorn", reason="serves")
    pytest.importorskip("starlette", reason="serves")
    with served("--slots", "4", "--context", "512") as (found, _):
        yield found


def health(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
        return json.loads(answer.read())


def wait_for_rest(address: str) -> None:
    end = time.monotonic() + 120
    while health(address)["running"] or health(address)["waiting"]:
        assert time.monotonic() < end, health(address)
        time.sleep(0.1)


def body(number: int) -> dict[str, Any]:
    random = randoms.Random(number)
    said = random.sample(SAID, random.randint(1, 3))
    messages = [{"role": "user", "content": text} for text in said]
    return {"messages": messages, "seed": number, "temperature": 0.8, "max_tokens": 60}


def asked(client: Any, number: int, is_stream: bool) -> str:
    given = {"model": "any", **body(number)}
    if not is_stream:
        return client.chat.completions.create(**given).choices[0].message.content
    chunks = client.chat.completions.create(**given, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_answers_to_32_clients_are_those_to_one(address: str) -> None:
    openai = pytest.importorskip("openai", reason="the official client")
    count = 2 * CLIENTS
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=600) as client:
        alone = [asked(client, number, False) for number in range(count)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            together = list(pool.map(lambda n: asked(client, n, bool(n % 2)), range(count)))
    assert together == alone
    assert len(set(alone)) > count // 3
    wait_for_rest(address)
    assert health(address)["pages_used"] == 0


def test_the_official_client_reads_everything(address: str) -> None:
    openai = pytest.importorskip("openai", reason="the official client")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=600)
    assert [m.id for m in client.models.list()] == ["svod-small"]
    assert len(client.embeddings.create(model="any", input="cat").data[0].embedding) == 96
    found = client.responses.create(model="any", input="Hello!", temperature=0)
    assert found.output_text == "Hello! How can I help you?"
    with client.responses.stream(model="any", input="Hello!", temperature=0) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_response().output_text == found.output_text
    assert {"response.output_text.delta", "response.completed"} <= kinds
    plain = client.completions.create(model="any", prompt="Hello", max_tokens=3, temperature=0)
    assert plain.usage.completion_tokens <= 3
    with pytest.raises(openai.BadRequestError, match="strange"):
        client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "x"}], extra_body={"strange": 1}
        )


def raw_request(address: str, content: bytes) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=60)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    found.sendall(head.encode() + content)
    return found


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_goes_away_frees_its_slot(address: str, is_stream: bool) -> None:
    endless = {"prompt": "Hello", "max_tokens": 400, "regex": "[a-z ]{3000}", "stream": is_stream}
    connections = [raw_request(address, json.dumps(endless).encode()) for _ in range(6)]
    end = time.monotonic() + 60
    while health(address)["running"] < 4:
        assert time.monotonic() < end
    for connection in connections:
        connection.close()
    wait_for_rest(address)
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        assert "svod_answers_cancelled_total 0" not in answer.read().decode()


def test_readers_that_do_not_read_hold_nobody_up(address: str) -> None:
    slow = {"prompt": "Hello", "max_tokens": 200, "regex": "[a-z ]{3000}", "stream": True}
    connections = [raw_request(address, json.dumps(slow).encode()) for _ in range(8)]
    quick = json.dumps({"prompt": "Hello", "max_tokens": 2}).encode()
    request = urllib.request.Request(
        f"{address}/v1/completions", quick, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 200
    for connection in connections:
        connection.close()
    wait_for_rest(address)


def test_bytes_that_are_no_request_harm_nobody(address: str) -> None:
    random = randoms.Random(9)
    host, port = address.removeprefix("http://").split(":")
    for _ in range(100):
        with socket.create_connection((host, int(port)), timeout=30) as found:
            found.sendall(random.randbytes(random.randrange(400)))
    statuses = set()
    for _ in range(200):
        with raw_request(address, random.randbytes(random.randrange(300))) as found:
            statuses.add(found.recv(64).split(b" ")[1])
    assert statuses == {b"400"}
    assert health(address)["status"] == "ok"


def test_the_end_waits_for_answers_that_were_begun() -> None:
    pytest.importorskip("uvicorn", reason="serves")
    pytest.importorskip("starlette", reason="serves")
    with served("--slots", "2", "--grace", "120") as (address, process):
        given = {"prompt": "Hello", "max_tokens": 120, "regex": "[a-z ]{3000}"}
        found: list[dict[str, Any]] = []

        def ask() -> None:
            request = urllib.request.Request(
                f"{address}/v1/completions", json.dumps(given).encode(),
                {"content-type": "application/json"},
            )  # fmt: skip
            with urllib.request.urlopen(request, timeout=120) as answer:
                found.append(json.loads(answer.read()))

        thread = threading.Thread(target=ask)
        thread.start()
        end = time.monotonic() + 60
        while not health(address)["running"]:
            assert thread.is_alive() and time.monotonic() < end
        os.kill(process.pid, signal.SIGTERM)
        thread.join(120)
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert found[0]["usage"]["completion_tokens"] == 120
