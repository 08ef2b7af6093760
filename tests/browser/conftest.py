"""A headless Chromium for all tests of the page, and the plans that they open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import plans

PATIENCE = 120.0  # seconds until a page that does not come is a failure


class Page:
    """A page in the browser: where it is, what it says, and what it complained about."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> Page:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(address)
        self.until("return document.body.dataset.ready === 'yes'")
        return self

    def go(self, view: str) -> Page:
        self.run("location.hash = arguments[0]", view)
        return self.arrived(view)

    def arrived(self, view: str) -> Page:
        """Wait for the view that an address or a click led to."""
        self.until("return document.body.dataset.view === '#' + arguments[0]", view)
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.run(script, *arguments)
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{script} {arguments} never held; {self.where}: {self.text[:500]}")

    @property
    def where(self) -> str:
        return str(self.run("return location.hash"))

    @property
    def text(self) -> str:
        return str(self.run("return document.getElementById('view').innerText"))

    def errors(self) -> list[str]:
        """What the console was told since the page was opened."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]

    def click(self, selector: str, containing: str = "") -> None:
        """Click the first element of a selector that has the text."""
        self.until(
            "return [...document.querySelectorAll(arguments[0])]"
            ".some(one => one.textContent.includes(arguments[1]))",
            selector,
            containing,
        )
        found = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".find(one => one.textContent.includes(arguments[1]))",
            selector,
            containing,
        )
        found.click()

    def at(self, x: float, y: float, act: str = "click") -> None:
        """Click a point of the first canvas, by the distance from its upper left corner."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.by import By

        canvas = self.driver.find_element(By.CSS_SELECTOR, "canvas")
        size = canvas.size
        chain = ActionChains(self.driver, duration=0)
        chain.move_to_element_with_offset(
            canvas, int(x - size["width"] / 2), int(y - size["height"] / 2)
        )
        getattr(chain, act)()
        chain.perform()

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Starts browsers, each with a folder of its own for what it keeps."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    drivers = []

    def begin(*more: str) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = plans.chromium()
        folder = tmp_path_factory.mktemp("browser")
        for argument in (
            "headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync",
            "disable-background-networking", "disable-component-update", "window-size=1280,860",
            "disable-dev-shm-usage", f"user-data-dir={folder}", *more,
        ):  # fmt: skip
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(plans.chromedriver()))
        driver.set_page_load_timeout(PATIENCE)
        driver.set_script_timeout(PATIENCE)
        drivers.append(driver)
        return driver

    yield begin
    for driver in drivers:
        driver.quit()


@pytest.fixture(scope="session")
def page(start: Callable[..., Any]) -> Page:
    return Page(start())


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of a report by the name of its plan, written when it is first asked for."""
    folder: Path = tmp_path_factory.mktemp("reports")

    def address(name: str) -> str:
        path = folder / f"{name}.html"
        if not path.exists():
            plan = plans.PLANS[name](folder)
            plan.report(path, title=name, runs=1)
        return path.as_uri()

    return address
