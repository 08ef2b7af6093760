"""The page about a plan: its data, that it asks for nothing, and who may read a server."""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn, prepare
from svod.tools.cli import main
from svod.tools.viz import Viewer, collected, plan_data, report_html


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
    report_html({"plans": [plan_data(step, runs=2)], "before": None})
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
    number = viewer._plans()[0].number
    assert status(viewer, own + f"plan/{number}") == 200
    assert status(viewer, own + f"kernel/{number}/0") == 200
    for wrong in (f"kernel/{number}/9999", f"plan/{number}/0", "plan/x", "plan/9999999", "../x"):
        assert status(viewer, own + wrong) == 404, wrong
    assert status(viewer, "/") == status(viewer, "/wrong/data") == status(viewer, "x") == 403
    assert status(viewer, own + "data", Host="evil.example") == 403
    assert status(viewer, own + "data", Origin="http://evil.example") == 403
    assert status(viewer, own + "data", Origin="null") == 403
    assert status(viewer, own + "data", Sec_Fetch_Site="cross-site") == 403


def test_a_server_that_is_closed_ends_the_connections_that_were_kept_open(plan: Any) -> None:
    viewer = Viewer(plan, runs=0)
    connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=10)
    connection.request("GET", f"/{viewer.token}/data")
    assert connection.getresponse().read()
    viewer.close()
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.request("GET", f"/{viewer.token}/data")
        connection.getresponse()


def test_plans_of_a_block_are_collected_with_their_runs() -> None:
    x = Tensor(np.ones((200, 200), np.float32)).realize()
    kept = prepare(x @ x)
    with collected(most=3) as found:
        for _ in range(3):
            kept.execute()
        for number in range(4):
            (x + number).exp().realize()
    assert len(found) == 3
    first = found[0]
    assert first.plan is kept and first.runs == 3
    assert first.spent_ns() > 0
    data = plan_data(kept, profiles=first.profiles(), details=False)
    assert [op["ns"] for op in data["ops"]] == [p.elapsed_ns for p in first.profiles() or []]
    kept.execute()
    assert first.runs == 3  # nobody watches any more


def test_a_plan_that_cannot_run_says_why_and_names_no_folder() -> None:
    @svod.jit
    def pick(x: Tensor, index: Tensor) -> Tensor:
        return x[index]

    index = Tensor(np.zeros(2, np.int64))
    plan = pick.plan(Tensor(np.ones(4, np.float32)).realize(), index)
    plan.bind(**{plan.ports[1].name: np.array([1, 77])})
    found = plan_data(plan, runs=1, details=False)
    assert found["problem"].startswith("IndexRangeError: ")
    assert str(Path(__file__).parent) not in found["problem"]
    assert Path(__file__).name in found["problem"]
    assert found["timeline"]["wall"] == 0


def test_a_module_is_viewed_with_inputs() -> None:
    viewer = Net().view(Tensor(np.ones((2, 8), np.float32)), runs=0, browser=False)
    try:
        assert viewer._plans()[0].title == "Net"
        assert len(viewer._plans()[0].plan.prepared_ops()) > 1
    finally:
        viewer.close()
    with pytest.raises(svod.errors.ArgumentError, match="no tensor but NoneType"):
        nn.Identity().view(None, browser=False)


PROGRAM = """
import sys
import svod
x = svod.ones(4, 4)
for _ in range(3):
    x = (x @ x).softmax(-1).realize()
print("seen", sys.argv[1:])
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError('oops')"])
def test_a_program_is_run_and_its_plans_are_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    program, page = tmp_path / "program.py", tmp_path / "page.html"
    program.write_text(PROGRAM.format(end=end))
    assert main(["viz", str(program), "-o", str(page), "--", "--fast"]) == 0
    out, err = capfd.readouterr()
    assert "seen ['--fast']" in out and f"{page}: 3 plans" in out
    assert ("ended with status 3" in err) == ("Exit" in end)
    assert ("oops" in err) == ("oops" in end)
    text = page.read_text(encoding="utf-8")
    packed = re.search(r'id="data">([^<]+)<', text)
    assert packed is not None
    data = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    assert {plan["title"] for plan in data["plans"]} >= {"program.py:6, 2 calls"}
    assert str(tmp_path) not in json.dumps(data)


def test_what_cannot_be_shown_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idle = tmp_path / "idle.py"
    idle.write_text("pass")
    assert main(["viz", str(idle), "-o", str(tmp_path / "x.html")]) == 1
    assert "ran no plan" in capsys.readouterr().err
    assert main(["viz", str(tmp_path / "none.onnx")]) == 1
    assert "there is no file" in capsys.readouterr().err


def test_a_saved_plan_is_shown_beside_another(tmp_path: Path) -> None:
    x = Tensor(np.ones((4, 4), np.float32)).realize()
    for name, value in (("now", x @ x), ("old", x + 1)):
        prepare(value).save(tmp_path / f"{name}.svod")
    page = tmp_path / "page.html"
    arguments = ["viz", str(tmp_path / "now.svod"), "--before", str(tmp_path / "old.svod")]
    assert main([*arguments, "-o", str(page), "--runs", "0"]) == 0
    assert page.stat().st_size > 10_000


@pytest.mark.long
def test_the_server_of_a_program_ends_with_its_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import svod\n(svod.ones(4) + 1).realize()\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "svod", "viz", str(program), "--no-browser"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        found = None
        while found is None:
            line = running.stderr.readline()
            assert line, "the process ended"
            found = re.search(r"(http://\S+) until Ctrl-C", line)
        with urllib.request.urlopen(found[1] + "data") as answer:
            assert len(json.loads(answer.read())["plans"]) == 1
    finally:
        running.kill()
        running.wait()
        if running.stderr is not None:
            running.stderr.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(found[1] + "data", timeout=10)


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((inside, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(
            [nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(b) for _, b, _, _ in sizes])
        self.short = nn.Conv2d(inside, 4 * width, 1, stride, bias=False)
        self.is_short = inside == 4 * width

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv, norm, last in zip(self.convs, self.norms, (False, False, True), strict=True):
            y = norm(conv(y))
            y = y if last else y.relu()
        return (y + (x if self.is_short else self.short(x))).relu()


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.pool, self.head = nn.MaxPool2d(3, 2, 1), nn.Linear(2048, 1000)
        inside, layers = 64, []
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for number in range(count):
                stride = 2 if number == 0 and width > 64 else 1
                layers.append(Bottleneck(inside, width, stride))
                inside = 4 * width
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.norm(self.stem(x)).relu())
        return self.head(self.layers(x).mean((2, 3)))


@pytest.mark.long
def test_the_report_of_resnet_50_is_at_most_5_mb(tmp_path: Path) -> None:
    x = Tensor(np.ones((1, 3, 224, 224), np.float32)).realize()
    plan = prepare(ResNet50().eval()(x), inputs={"x": x}, freeze=True)
    path = tmp_path / "resnet.html"
    plan.report(path, runs=1)
    assert 300_000 < path.stat().st_size <= 5_000_000


def test_a_gpu_kernel_says_what_it_takes_of_a_multiprocessor() -> None:
    from svod.device.cuda.cuda_program import CudaProgram

    class Driver:
        def has(self, name: str) -> bool:
            return True

        def integer(self, name: str, *arguments: int) -> int:
            if name == "cuFuncGetAttribute":
                assert arguments[1] == 7
                return {1: 16, 3: 8, 4: 40}[arguments[0]]
            assert arguments == (7, 128, 1024)
            return 5

    class Context:
        def use(self) -> Driver:
            return Driver()

    program: Any = object.__new__(CudaProgram)
    program.context, program.function, program.shared = Context(), 7, 1024
    assert program.resources(128) == {
        "registers per thread": 40, "spilled bytes per thread": 8, "shared bytes per block": 1040,
        "threads per block": 128, "blocks per multiprocessor": 5,
    }  # fmt: skip


def test_a_profile_of_a_program_is_by_module_or_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import svod\n"
        "net = svod.nn.Linear(4, 4)\n"
        "y = net(svod.ones(2, 4)).realize()\n"
        "(y + 1).exp().realize()\n"
    )
    assert main(["profile", str(program), "--by", "module"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^Linear +\d+ ", text, re.MULTILINE)
    assert "(outside of modules)" in text
    assert main(["profile", str(program), "--by", "line", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"program.py:3", "program.py:4"} <= {row["name"] for row in data["by"]["line"]}
    total = sum(row["ns"] for row in data["by"]["module"])
    assert total == data["total_ns"] > 0
