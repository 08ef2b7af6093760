"""`svod serve`: a language model behind OpenAI's interface, with a page to chat."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from svod.base.errors import ArgumentError
from svod.tools.language_arguments import open_language_model
from svod.tools.report import Report

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


def serve(options: argparse.Namespace) -> Report:
    """Serve until the process is told to end."""
    try:
        import uvicorn

        from svod.llm.server.app import Settings, application
    except ImportError:
        raise ArgumentError("svod serve needs Starlette: pip install 'svod[serve]'") from None
    if not 0 <= options.port < 1 << 16:
        raise ArgumentError(f"there is no port {options.port}")
    if min(options.queue, options.grace) < 0:
        raise ArgumentError(f"a queue of {options.queue} requests, {options.grace} seconds")
    keys = _keys(options)
    is_loopback = options.host in LOOPBACK
    if not is_loopback and not keys:
        print(f"serving at {options.host} without a key: whoever reaches it may use it",
              file=sys.stderr)  # fmt: skip
    model = open_language_model(options, options.slots)
    model.name = options.name or model.name
    settings = Settings(keys, LOOPBACK if is_loopback else (), options.queue)
    config = uvicorn.Config(
        application(model, settings), host=options.host, port=options.port, log_level="warning",
        access_log=False, timeout_graceful_shutdown=options.grace, timeout_keep_alive=30, ws="none",
        lifespan="on", server_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    print(f"{model.name}: {options.slots} slots of {model.context} tokens, "
          f"http://{options.host}:{options.port}/", flush=True)  # fmt: skip
    server.run()
    if not server.started:
        raise ArgumentError(f"{options.host}:{options.port} cannot be listened at")
    return Report({"host": options.host, "port": options.port, "model": model.name}, "ended")


def _keys(options: argparse.Namespace) -> tuple[str, ...]:
    keys = list(options.api_key)
    if options.api_key_file is not None:
        try:
            lines = Path(options.api_key_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{options.api_key_file} is not read: {error}") from None
        keys += [line.strip() for line in lines if line.strip()]
    if any(not key for key in keys):
        raise ArgumentError("a key is a text of at least one character")
    return tuple(keys)
