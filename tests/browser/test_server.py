"""The server in a real browser: its own page reads it, no other page does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import svod
from svod.tools.viz import Viewer
from tests.browser.conftest import Page

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def viewer() -> Iterator[Viewer]:
    x = svod.ones(8, 8)
    found = Viewer(svod.prepare((x @ x).softmax(-1)), runs=1)
    yield found
    found.close()


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    """The address of a page of somebody else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b"<!doctype html><title>foreign</title><body>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def test_the_page_asks_for_details_when_they_are_looked_at(page: Page, viewer: Viewer) -> None:
    page.open(viewer.url).go("kernel/0/0")
    page.until("return document.querySelector('.tabs button')")
    page.click(".tabs button", "LLVM IR")
    assert "define" in page.text
    page.go("graph/modules")
    assert page.errors() == []


READS = """
const address = arguments[0], done = arguments[arguments.length - 1];
const tries = {
  fetch: () => fetch(address + 'data').then(one => one.text()),
  opaque: () => fetch(address + 'data', { mode: 'no-cors' }).then(one => one.text())
    .then(text => { if (!text) throw 0; }),
  script: () => new Promise((yes, no) => { const one = document.createElement('script');
    one.src = address + 'data'; one.onload = yes; one.onerror = no; document.body.append(one); }),
  image: () => new Promise((yes, no) => { const one = new Image(); one.onload = yes;
    one.onerror = no; one.src = address; }),
  frame: () => new Promise((yes, no) => { const one = document.createElement('iframe');
    one.onload = () => { try { one.contentDocument.body.innerText.includes('Overview') ? yes()
      : no(); } catch { no(); } };
    one.onerror = no; one.src = address; document.body.append(one); }),
};
Promise.all(Object.entries(tries).map(([name, act]) => act().then(() => name, () => null)))
  .then(names => done(names.filter(Boolean)));
"""


def test_a_foreign_page_cannot_read_the_server_even_with_its_token(
    page: Page, viewer: Viewer, foreign: str
) -> None:
    page.driver.get(foreign)
    assert page.run("return document.title") == "foreign"
    assert page.driver.execute_async_script(READS, viewer.url) == []
    page.driver.get_log("browser")


def test_a_name_that_was_made_to_point_here_is_refused(
    start: Callable[..., Any], viewer: Viewer
) -> None:
    driver = start("host-resolver-rules=MAP evil.example 127.0.0.1")
    driver.get(viewer.url.replace("127.0.0.1", "evil.example"))
    assert driver.find_element("tag name", "body").text == "refused"


def test_a_server_that_has_ended_is_said_to_have(page: Page) -> None:
    x = svod.ones(4, 4)
    viewer = Viewer(svod.prepare(x + 1), runs=0)
    page.open(viewer.url)
    viewer.close()
    page.run("delete state.data.plans[0].ops")
    page.run("choosePlan(0)")
    page.until("return document.getElementById('view').innerText.includes('could not be read')")
    page.driver.get_log("browser")
