"""The page about a plan: its data, that it asks for nothing, and who may read a server."""

from __future__ import annotations

import base64
import http.client
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svod import Tensor, nn, prepare
from svod.tools.viz import Viewer, plan_data, report_html


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).softmax(-1)


@pytest.fixture(scope="module")
def plan() -> Any:
    return prepare(Net()(Tensor(np.ones((2, 8), np.float32))))


def test_kernels_name_the_module_and_the_line_they_come_from(plan: Any) -> None:
    found = plan_data(plan, runs=0, details=False)
    modules = {found["origins"][op["origin"]]["module"] for op in found["ops"]}
    assert modules & {"Net.body.0", "Net.body.1"}
    assert {row["file"] for row in found["origins"]} == {Path(__file__).name}


def test_stored_values_say_why_and_passes_are_told_in_order(plan: Any) -> None:
    found = plan_data(plan, runs=1)
    assert all(op["reason"][0] in found["rules"] for op in found["ops"])
    names = [step["name"] for step in found["kernels"][0]["details"]["passes"]]
    assert names[:3] == ["body", "rangeify", "optimize"]
    assert names[-1] == "lower"
    assert "define" in found["kernels"][0]["details"]["llvm"]
    assert found["kernels"][0]["details"]["asm"]
    assert sum(op["ns"] for op in found["ops"]) > 0


def test_gradients_belong_to_the_module_they_are_of() -> None:
    net = Net()
    loss = (net(Tensor(np.ones((2, 8), np.float32))) ** 2).sum()
    loss.backward()
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    found = plan_data(prepare(*grads), runs=0, details=False)
    modules = {row["module"] for row in found["origins"]}
    assert {"Net.body.0", "Net.body.2"} <= modules


def test_the_report_holds_its_data_asks_for_nothing_and_names_no_folder(
    plan: Any, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    plan.report(path, runs=1, title="</script><b>")
    text = path.read_text(encoding="utf-8")
    assert "default-src 'none'".replace("'", "&#x27;") in text
    assert not re.search(r"https?://|src=", text)
    packed = re.search(r'id="data">([^<]+)<', text)
    assert packed is not None
    data = zlib.decompress(base64.b64decode(packed[1])).decode()
    assert json.loads(data)["plans"][0]["format"] == 1
    assert str(Path(__file__).parent) not in data
    assert "<title>&lt;/script&gt;" in text


def test_a_report_does_not_change_what_a_plan_writes() -> None:
    state = Tensor(np.zeros(4, np.float32)).realize()
    state.assign(state + 1)
    step = prepare(state)
    step.execute()
    before = step.output_buffers()[0].numpy().copy()
    report_html({"plans": [plan_data(step, runs=2)]})
    np.testing.assert_array_equal(step.output_buffers()[0].numpy(), before)


@pytest.fixture
def viewer(plan: Any) -> Iterator[Viewer]:
    found = Viewer(plan, runs=0)
    yield found
    found.close()


def status(viewer: Viewer, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=10)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{viewer.port}", **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_server_answers_only_its_own_page_with_the_token(viewer: Viewer) -> None:
    own = f"/{viewer.token}/"
    assert status(viewer, own) == status(viewer, own + "data") == 200
    assert status(viewer, own + "kernel/0/0") == 200
    assert status(viewer, own + "kernel/0/9999") == status(viewer, own + "../x") == 404
    assert status(viewer, "/") == status(viewer, "/wrong/data") == status(viewer, "x") == 403
    assert status(viewer, own + "data", Host="evil.example") == 403
    assert status(viewer, own + "data", Origin="http://evil.example") == 403
    assert status(viewer, own + "data", Origin="null") == 403
    assert status(viewer, own + "data", Sec_Fetch_Site="cross-site") == 403
