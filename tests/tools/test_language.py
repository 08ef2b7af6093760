"""`svod chat`, `generate`, `bench-llm` and `serve` at the command line, with the small model."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from svod.tools import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(arguments)
    found = capsys.readouterr()
    return status, found.out, found.err


def test_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2", reason="templates are Jinja")
    said = ("--temperature", "0", "--context", "128", "--say", "Hello!", "--say", "Spell window.")
    status, out, err = run(capsys, "chat", *said)
    assert (status, out, err) == (0, "Hello! How can I help you?\nw-i-n-d-o-w.\n", "")
    status, out, _ = run(capsys, "chat", "--json", "--system", "You are a pirate.", *said)
    data = json.loads(out)
    assert [m["role"] for m in data["messages"]] == ["system", *("user", "assistant") * 2]
    assert data["messages"][2]["content"].endswith("Arr!")
    assert data["finish"] == "stop" and data["tokens"] > 3


def test_what_is_piped_in_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2", reason="templates are Jinja")
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello!\n\n/new\nThanks!\n/exit\nSpell tree.\n"))
    status, out, err = run(capsys, "chat", "--temperature", "0", "--context", "128")
    assert status == 0 and err == ""
    assert out == "Hello! How can I help you?\nYou are welcome!\n"


def test_a_text_is_continued_in_a_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ("--prompt", "Say", "--seed", "1", "--context", "128")
    status, out, _ = run(capsys, "generate", *given, "--regex", " (ha){3}!")
    assert (status, out) == (0, "Say hahaha!\n")
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["red", "blue"]}')
    status, out, _ = run(capsys, "generate", *given, "--json-schema", str(schema), "--json")
    assert json.loads(json.loads(out)["text"]) in ("red", "blue")
    status, _, err = run(capsys, "generate", *given, "--regex", "x", "--grammar", "y")
    assert status == 1 and "one form" in err
    status, _, err = run(capsys, "generate", *given, "--json-schema", str(tmp_path / "none"))
    assert status == 1 and "is not read" in err


def test_rates_are_printed_as_llama_bench_does(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "bench-llm", "-p", "32", "-n", "8", "-r", "2")
    assert status == 0
    header, _, prompt, answer, _ = out.splitlines()
    assert header == "| model | size | params | threads | test | t/s | GB/s |"
    assert "| pp32 |" in prompt and "| tg8 |" in answer
    status, _, err = run(capsys, "bench-llm", "-p", "5000")
    assert status == 1 and "too short" in err


@pytest.mark.parametrize("verb", ["chat", "generate", "serve", "bench-llm"])
def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    if verb == "serve":
        pytest.importorskip("uvicorn", reason="serves")
        pytest.importorskip("starlette", reason="serves")
    given = ("--prompt", "x") if verb == "generate" else ()
    status, _, err = run(capsys, verb, "nowhere.gguf", *given)
    assert status == 1 and "nowhere.gguf is neither a GGUF file nor a folder" in err
