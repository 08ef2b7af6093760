"""The chat page in a real browser, against the model that ships."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm.serving import served

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1200,800",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="drives the browser")
    pytest.importorskip("uvicorn", reason="serves the page")
    pytest.importorskip("starlette", reason="serves the page")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("there is no Chromium with its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("--slots", "2") as (found, _):
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    browser.get(address)
    browser.execute_script("localStorage.clear()")
    browser.get(address)
    until(lambda: browser.find_element("id", "model").text == "svod-small")
    return browser


def until(is_so: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)
    return found


def say(page: Any, text: str) -> None:
    page.find_element("id", "text").send_keys(text + "\n")


def messages(page: Any) -> list[tuple[str, str]]:
    return page.execute_script(
        "return [...document.querySelectorAll('.message')].map(m => "
        "[m.classList[1], m.querySelector('.body')?.innerText ?? ''])"
    )


def answered(page: Any, count: int) -> list[tuple[str, str]]:
    until(lambda: len(messages(page)) == count and page.find_element("id", "send").is_displayed())
    return messages(page)


def set_number(page: Any, name: str, value: str) -> None:
    field = page.find_element("id", f"set-{name}")
    field.clear()
    field.send_keys(value)


def settings(page: Any, **values: str) -> None:
    page.find_element("id", "open-settings").click()
    for name, value in values.items():
        if name == "system":
            page.find_element("id", "system").send_keys(value)
        else:
            set_number(page, name, value)
    page.find_element("id", "close-settings").click()


def press(page: Any, label: str) -> None:
    buttons = page.find_elements("css selector", ".tools button")
    next(b for b in buttons[::-1] if b.text == label).click()


def test_a_conversation_is_kept_edited_and_tried_again(page: Any) -> None:
    settings(page, temperature="0")
    say(page, "Hello!")
    found = answered(page, 2)
    assert found[0] == ["user", "Hello!"]
    assert found[1] == ["assistant", "Hello! How can I help you?"]
    assert "tokens/s" in page.find_element("css selector", ".rate").text
    say(page, "Spell window.")
    assert answered(page, 4)[3][1] == "w-i-n-d-o-w."
    press(page, "Retry")
    assert answered(page, 4)[3][1] == "w-i-n-d-o-w."
    press(page, "Edit")
    field = page.find_element("css selector", "textarea.edit")
    field.clear()
    field.send_keys("Count from 3 to 6.\n")
    assert answered(page, 4)[2:] == [["user", "Count from 3 to 6."], ["assistant", "3, 4, 5, 6."]]
    page.refresh()
    assert len(answered(page, 4)) == 4


def test_several_conversations(page: Any) -> None:
    settings(page, temperature="0")
    say(page, "Hello!")
    answered(page, 2)
    page.find_element("id", "new").click()
    assert messages(page) == []
    say(page, "Thanks!")
    answered(page, 2)
    titles = [b.text for b in page.find_elements("css selector", "#conversations .open")]
    assert titles == ["Thanks!", "Hello!"]
    page.find_elements("css selector", "#conversations .open")[1].click()
    assert messages(page)[0][1] == "Hello!"


def test_a_system_message_and_settings_reach_the_model(page: Any) -> None:
    settings(page, temperature="0", system="You are a pirate.", max_tokens="60")
    say(page, "Who are you?")
    assert answered(page, 2)[1][1].endswith("Arr!")


def test_an_answer_is_stopped(page: Any) -> None:
    page.execute_script(
        "const before = window.fetch; window.fetch = async (...given) => {"
        "const found = await before(...given); if (!given[0].includes('chat')) return found;"
        "const slow = new TransformStream({async transform(part, to) {"
        "to.enqueue(part); await new Promise(r => setTimeout(r, 300));}});"
        "return new Response(found.body.pipeThrough(slow), found);}"
    )
    say(page, "Tell me a story about a fox.")
    until(lambda: page.find_element("id", "stop").is_displayed())
    until(lambda: len(messages(page)) == 2 and messages(page)[1][1])
    page.find_element("id", "stop").click()
    answered(page, 2)
    assert "stopped" in page.find_element("css selector", ".rate").text


def test_text_of_the_user_is_not_markup(page: Any) -> None:
    say(page, "<img src=x onerror=document.title='broken'>")
    answered(page, 2)
    assert messages(page)[0][1].startswith("<img")
    assert page.title != "broken"


def test_screens_of_phones_have_a_menu_and_no_sideways_scrolling(page: Any, tmp_path: Path) -> None:
    page.set_window_size(500, 800)
    try:
        say(page, "Hello!")
        answered(page, 2)
        width = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        page.find_element("id", "menu").click()
        until(lambda: page.find_element("id", "new").is_displayed())
    finally:
        page.set_window_size(1200, 800)
