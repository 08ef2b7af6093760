"""The page in a real browser: every view opens, links lead where they say, keys work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Page

pytestmark = pytest.mark.long

Reports = Callable[[str], str]

# A view, and what it says of any plan that was run.
VIEWS = {
    "overview": "By module",
    "graph/modules": "Unfold one to see inside",
    "graph/calls": "Each box is a call",
    "kernels": "in order",
    "timeline": "One run",
    "memory": "All buffers",
    "preparation": "",
    "compare": "There is one plan",
}


@pytest.fixture(scope="module")
def convnet(page: Page, reports: Reports) -> Page:
    return page.open(reports("convnet"))


@pytest.mark.parametrize("name", ["convnet", "gpt", "onnx", "saved"])
def test_every_view_opens(page: Page, reports: Reports, name: str) -> None:
    page.open(reports(name))
    for view, says in VIEWS.items():
        page.go(view)
        assert says in page.text, view
        assert "could not be shown" not in page.text
        assert page.run("return document.getElementById('view').children.length") > 0
    page.go("kernel/0/0")
    page.until("return document.querySelector('.tabs button, .empty')")
    tabs = page.run("return [...document.querySelectorAll('.tabs button')].map(b => b.textContent)")
    if name == "saved":
        assert "holds machine code alone" in page.text or "Assembly" in tabs
    else:
        assert tabs[0] == "Loops"
        assert {"body", "lower", "LLVM IR", "Assembly"} <= set(tabs)
    assert page.errors() == []


def test_a_report_asks_for_nothing(page: Page, reports: Reports) -> None:
    page.open(reports("gpt"))
    for view in VIEWS:
        page.go(view)
    assert page.run("return performance.getEntriesByType('resource').map(one => one.name)") == []
    refused = "return fetch('http://127.0.0.1:9/').then(() => 'read', () => 'refused')"
    assert page.run(refused) == "refused"
    assert any("Content Security Policy" in line for line in page.errors())


def test_modules_unfold_to_ops_and_fold_again(convnet: Page) -> None:
    convnet.go("graph/modules")
    shown = convnet.run("return state.graph.shown()")
    (first,) = [box for box in shown if box["name"] == "ConvNet (1 of 2)"]
    convnet.at(first["x"], first["y"])
    assert convnet.run("return state.graph.chosen()") == "ConvNet (1 of 2)"
    assert "Calls of this module" in convnet.run("return document.querySelector('aside').innerText")
    convnet.keys(Keys.ENTER)
    names = [box["name"] for box in convnet.run("return state.graph.shown()")]
    assert any(name.startswith("blocks") for name in names)
    assert any(name.startswith("head") for name in names)
    convnet.keys(Keys.ENTER)
    assert convnet.run("return state.graph.shown()") == shown


def test_a_kernel_unfolds_to_its_values_with_reasons_and_costs(convnet: Page) -> None:
    find = (
        "return state.plan.ops.findIndex(op => op.reason && op.reason[5] !== null"
        " && (op.inside ?? []).length)"
    )
    convnet.go("overview").go(f"graph/calls/{convnet.run(find)}")
    panel = convnet.run("return document.querySelector('aside').innerText")
    assert "the cheaper one of computing it at each use and of storing it once" in panel
    assert "at each use" in panel and "stored once" in panel
    before = len(convnet.run("return state.graph.shown()"))
    convnet.keys(Keys.ENTER)
    shown = convnet.run("return state.graph.shown()")
    assert len(shown) > before
    assert {"op", "param"} <= {box["kind"] for box in shown}


def test_links_lead_from_a_call_to_kernel_line_time_and_buffer(convnet: Page) -> None:
    op = convnet.run("return state.plan.ops.findIndex(op => originOf(op)?.module && op.ns > 0)")
    number = convnet.run("return state.plan.ops[arguments[0]].kernel", op)
    convnet.go(f"graph/calls/{op}")
    convnet.click("aside .links a", "Kernel")
    convnet.arrived(f"kernel/{number}/{op}")
    name = convnet.run("return state.plan.kernels[arguments[0]].name", number)
    assert convnet.text.startswith(name)

    convnet.click(".links a", "Timeline")
    convnet.arrived(f"timeline/{op}")
    low, high = convnet.run("return state.chart.window()")
    assert high - low < convnet.run("return state.plan.timeline.wall")

    convnet.go(f"kernel/{number}/{op}").click(".links a", "Buffer")
    place = convnet.run("return state.plan.ops[arguments[0]].writes[0]", op)
    convnet.arrived(f"memory/{place}")
    assert convnet.run("return bufferName(arguments[0])", place) in convnet.text

    convnet.go(f"kernel/{number}/{op}").click(".links a", "Line")
    origin = convnet.run("return state.plan.ops[arguments[0]].origin", op)
    convnet.arrived(f"kernels/line/{origin}")
    rows = convnet.run("return document.querySelectorAll('.row[role=option]').length")
    assert rows >= 1
    assert "plans.py:" in convnet.text


def test_a_module_of_the_overview_leads_to_its_calls(convnet: Page) -> None:
    convnet.go("overview").click(".row[role=option]", "blocks")
    convnet.until("return location.hash.startsWith('#kernels/module/')")
    convnet.until("return document.querySelector('.row[role=option]')")
    modules = convnet.run(
        "const rows = [...document.querySelectorAll('.row[role=option]')];"
        "return rows.map(row => row.children[2].innerText)"
    )
    assert modules
    assert all(module.startswith("ConvNet.blocks") for module in modules)


def test_a_slice_of_the_timeline_leads_to_its_kernel_and_a_drag_sums(convnet: Page) -> None:
    convnet.go("timeline")
    wall, width = convnet.run(
        "return [state.plan.timeline.wall, document.querySelector('canvas').clientWidth]"
    )
    longest = convnet.run(
        "return state.plan.ops.reduce((a, b) => (b.ns ?? 0) > (a.ns ?? 0) ? b : a).index"
    )
    lanes = convnet.run("return state.plan.timeline.lanes")
    _, start, end = next(
        lane["slices"][at : at + 3]
        for lane in lanes
        for at in range(0, len(lane["slices"]), 3)
        if lane["slices"][at] == longest
    )
    row = next(n for n, lane in enumerate(lanes) if longest in lane["slices"][::3])
    x = 96 + (start + end) / 2 / wall * (width - 96)
    convnet.at(x, 22 + 32 * row + 10)
    convnet.until("return location.hash.startsWith('#kernel/')")
    convnet.go("timeline")
    assert "All of it" in convnet.text
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    canvas = convnet.driver.find_element(By.CSS_SELECTOR, "canvas")
    drag = ActionChains(convnet.driver, duration=0)
    drag.move_to_element_with_offset(canvas, -100, 0).click_and_hold()
    drag.move_by_offset(200, 0).release().perform()
    first, last = convnet.run("return state.chart.chosen()")
    assert 0 <= first < last <= wall
    assert "Selected:" in convnet.text and "By module" in convnet.text


def test_new_and_gone_lines_of_a_pass_are_marked(convnet: Page) -> None:
    number = convnet.run(
        "return state.plan.kernels.findIndex(one => one.details.passes.length > 3)"
    )
    convnet.go("overview").go(f"kernel/{number}")
    convnet.click(".tabs button", "optimize")
    assert convnet.run("return document.querySelectorAll('pre .new').length") > 0
    assert convnet.run("return document.querySelectorAll('pre .gone').length") == 0
    convnet.click("label", "lines that are gone")
    assert convnet.run("return document.querySelectorAll('pre .gone').length") > 0
    kept = convnet.run(
        "return differences(['%1 = A', '%2 = B %1', '%3 = C'], ['%1 = A', '%2 = X', '%3 = B %1'])"
    )
    assert kept == [[0, "%1 = A"], [1, "%2 = X"], [0, "%3 = B %1"], [-1, "%3 = C"]]


def test_keys_choose_views_search_and_go_through_lists(convnet: Page) -> None:
    convnet.go("overview")
    for key, view in (("2", "graph"), ("4", "timeline"), ("5", "memory"), ("3", "kernels")):
        convnet.keys(key)
        convnet.arrived(view)
    every = convnet.run("return Number(document.querySelector('h2').innerText.split(' ')[0])")
    convnet.keys("/")
    convnet.keys("blocks.1")
    convnet.until(
        "return Number(document.querySelector('h2').innerText.split(' ')[0]) < arguments[0]", every
    )
    convnet.keys(Keys.ESCAPE)
    convnet.until(
        "return Number(document.querySelector('h2').innerText.split(' ')[0]) === arguments[0]",
        every,
    )
    convnet.run("document.querySelector('.list').focus()")
    convnet.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    convnet.until("return location.hash.startsWith('#kernel/') || location.hash.includes('graph')")
    convnet.keys(Keys.ESCAPE)
    convnet.arrived("kernels")
    convnet.go("timeline")
    wide = convnet.run("const [a, b] = state.chart.window(); return b - a")
    convnet.keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert convnet.run("const [a, b] = state.chart.window(); return b - a") < wide
    convnet.go("graph/modules")
    convnet.run("state.graph.tree.chosen = null")
    convnet.go("overview").go("graph/modules")
    convnet.until("return document.activeElement.tagName === 'CANVAS'")
    convnet.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert convnet.run("return state.graph.chosen()")


def test_two_plans_stand_side_by_side(page: Page, tmp_path: Any) -> None:
    import svod

    x = svod.ones(16, 16).realize()
    before, after = svod.prepare((x @ x).sum()), svod.prepare((x @ x).exp().sum(0))
    after.report(tmp_path / "both.html", before=before, runs=1, title="after")
    page.open((tmp_path / "both.html").as_uri()).go("compare")
    assert "added" in page.text and "removed" in page.text
    page.run("const chosen = document.getElementById('plans'); chosen.value = '1'; "
             "chosen.dispatchEvent(new Event('change'))")  # fmt: skip
    page.until("return state.plan.title === 'before'")
    assert page.errors() == []


def test_ten_thousand_kernels_open_and_scroll(page: Page, reports: Reports) -> None:
    """In 3 seconds, and 0.1 for a frame, of the processor that the page's thread used."""
    driver = page.driver
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

    start = seconds()
    page.open(reports("long"))
    after = seconds()  # another process may have the page now, which counts from 0
    assert (after - start if after >= start else after) < 3
    assert page.run("return state.plan.ops.length") >= 10_000
    for view in ("kernels", "graph/calls", "graph/modules", "timeline", "memory"):
        start = seconds()
        page.go(view)
        page.run("return new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        assert page.run("return document.querySelectorAll('*').length") < 1000, view
        assert seconds() - start < 3, view
    page.go("kernels")
    start = seconds()
    for turn in range(30):
        page.run(
            "document.querySelector('.list').scrollTop = arguments[0];"
            "return new Promise(done => requestAnimationFrame(() => setTimeout(done)))",
            turn * 9000,
        )
    assert (seconds() - start) / 30 < 0.1
    assert page.run("return document.querySelector('.row[role=option]').innerText").startswith("9")
    driver.execute_cdp_cmd("Performance.disable", {})
    assert page.errors() == []
