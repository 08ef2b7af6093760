"""The verbs over models and plans: what they print, what they write, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the onnx package")

from onnx import helper

import svod
from svod.tools import cli
from tests.frontend.onnx.seeds import SEEDS, build


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    data, feeds = SEEDS["mlp"]()
    (tmp_path / "m.onnx").write_bytes(data)
    np.save(tmp_path / "x.npy", feeds["x"])
    return tmp_path


def said(capsys: Any, *arguments: Any) -> str:
    assert cli.main([str(a) for a in arguments]) == 0
    return str(capsys.readouterr().out)


def refused(capsys: Any, *arguments: Any) -> str:
    assert cli.main([str(a) for a in arguments]) == 1
    return str(capsys.readouterr().err)


def test_run_writes_outputs(mlp: Path, capsys: Any) -> None:
    data, feeds = SEEDS["mlp"]()
    text = said(
        capsys, "run", mlp / "m.onnx", "--input", f"x={mlp / 'x.npy'}", "--output-dir", mlp / "out"
    )
    assert "float32  [3, 4]" in text and "ran in" in text
    wanted = svod.onnx.load(data)(feeds["x"])
    np.testing.assert_allclose(np.load(mlp / "out" / "y.npy"), wanted, rtol=1e-6)


def test_run_as_json_with_random_inputs(mlp: Path, capsys: Any) -> None:
    found = json.loads(said(capsys, "run", mlp / "m.onnx", "--random", "--dim", "n=5", "--json"))
    (output,) = found["outputs"]
    assert (output["name"], output["type"], output["shape"]) == ("y", "float32", [5, 4])


def test_what_run_refuses(mlp: Path, capsys: Any) -> None:
    model = mlp / "m.onnx"
    assert "inputs are missing: give --input x=FILE" in refused(capsys, "run", model)
    assert "there is no file" in refused(capsys, "run", mlp / "gone.onnx")
    gone = mlp / "gone.npy"
    assert "No such file" in refused(capsys, "run", model, "--input", f"x={gone}")
    (mlp / "pickled.npy").write_bytes(b"\x80\x04N.")
    said_of = refused(capsys, "run", model, "--input", f"x={mlp / 'pickled.npy'}")
    assert "ArgumentError" in said_of
    assert "'z' is no input" in refused(capsys, "run", model, "--input", f"z={mlp / 'x.npy'}")
    np.save(mlp / "wrong.npy", np.zeros((2, 9), np.float32))
    wrong = f"x={mlp / 'wrong.npy'}"
    assert "has shape ['n', 8]" in refused(capsys, "run", model, "--input", wrong)
    assert "no size 'm'" in refused(capsys, "run", model, "--random", "--dim", "m=3")
    (mlp / "bad.onnx").write_bytes(b"hello world, no model")
    assert "OnnxError" in refused(capsys, "run", mlp / "bad.onnx", "--random")


@pytest.mark.parametrize("option", ["n", "n=", "n=0", "n=5:2", "n=-1", "=3", "n=1:x"])
def test_a_wrong_dim_is_wrong_usage(mlp: Path, capsys: Any, option: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", str(mlp / "m.onnx"), "--dim", option])
    assert caught.value.code == 2
    assert "--dim" in capsys.readouterr().err


def test_inspect_shows_a_model(mlp: Path, capsys: Any) -> None:
    text = said(capsys, "inspect", mlp / "m.onnx", "--dim", "n=1:8")
    for part in ("4 nodes", "3 weights", "[n, 8]", "n=1:8", "1  Gemm", "is supported"):
        assert part in text
    found = json.loads(said(capsys, "inspect", mlp / "m.onnx", "--json"))
    assert found["operators"] == {"Gemm": 1, "LeakyRelu": 1, "MatMul": 1, "Softmax": 1}
    assert found["sizes"] == {"n": None}
    assert found["weights"] == {"tensors": 3, "bytes": 312}


def test_inspect_names_all_that_is_not_supported(tmp_path: Path, capsys: Any) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Wobble", ["a"], ["y"], name="second"),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(build(nodes, {"x": np.zeros(3, np.float32)}, ["y"]))
    assert cli.main(["inspect", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["unsupported"]) == 2
    assert cli.main(["inspect", str(path)]) == 1
    text = capsys.readouterr().out
    assert "Frobnicate 'first'" in text and "Wobble 'second'" in text


def test_inspect_counts_nodes_of_inner_graphs(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "m.onnx").write_bytes(SEEDS["control"]()[0])
    found = json.loads(said(capsys, "inspect", tmp_path / "m.onnx", "--json"))
    assert found["operators"]["Neg"] == 1 and found["operators"]["If"] == 1


def test_a_compiled_model_runs_as_a_plan(mlp: Path, capsys: Any) -> None:
    plan = mlp / "m.svod"
    assert "kernels" in said(capsys, "compile", mlp / "m.onnx", "-o", plan, "--dim", "n=1:8")
    text = said(capsys, "inspect", plan)
    assert "on CPU" in text and "[n, 8]" in text
    found = json.loads(
        said(capsys, "run", plan, "--input", f"x={mlp / 'x.npy'}", "--json")
    )  # fmt: skip
    assert found["outputs"][0]["shape"] == [3, 4]
    assert "machine code, not its loops" in said(capsys, "explain", plan)
    assert "--dim is for ONNX files" in refused(capsys, "run", plan, "--random", "--dim", "n=3")
    assert "is a plan already" in refused(capsys, "compile", plan, "-o", mlp / "n.svod")
    assert "bench takes an ONNX file" in refused(capsys, "bench", plan)


def test_a_model_in_parts_is_explained_part_by_part(tmp_path: Path, capsys: Any) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("NonZero", ["e"], ["i"], name="filter"),
        helper.make_node("Cast", ["i"], ["y"], to=1),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(build(nodes, {"x": np.zeros(3, np.float32)}, ["y"]))
    assert "no single plan" in refused(capsys, "compile", path, "-o", tmp_path / "m.svod")
    text = said(capsys, "explain", path)
    assert "1. a plan up to NonZero 'filter', whose data say how many results it has" in text
    assert "2. then a plan for 0 to 3 results of i" in text
    found = json.loads(said(capsys, "explain", path, "--json"))
    assert [len(stage["calls"]) for stage in found["stages"]] == [1, 1]


def test_explain_shows_sorts_of_a_plan(tmp_path: Path, capsys: Any) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [300])],
        [helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("k", 7, [1], [300])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert "kernel sort_300" in said(capsys, "explain", tmp_path / "m.onnx")


def test_explain_shows_kernels(mlp: Path, capsys: Any) -> None:
    text = said(capsys, "explain", mlp / "m.onnx")
    assert "distinct kernels" in text and "sum over" in text
    found = json.loads(said(capsys, "explain", mlp / "m.onnx", "--json"))
    assert found["calls"] and found["notes"] == []


def test_profile_of_a_model_and_its_trace(mlp: Path, capsys: Any) -> None:
    trace = mlp / "trace.json"
    text = said(capsys, "profile", mlp / "m.onnx", "--runs", 3, "--trace", trace)
    assert "share" in text and "perfetto" in text
    assert json.loads(trace.read_text())["traceEvents"]
    found = json.loads(said(capsys, "profile", mlp / "m.onnx", "--runs", 3, "--json"))
    assert found["runs"] == 3 and {row["calls"] for row in found["kernels"]} == {3}


def test_profile_of_a_script(tmp_path: Path, capsys: Any) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import sys, svod\n"
        "print('hello', sys.argv[1])\n"
        "(svod.ones((64, 64)) @ svod.arange(64, dtype=svod.float32)).realize()\n"
    )
    assert cli.main(["profile", str(script), "you", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["kernels"]
    assert "hello you" in captured.err
    script.write_text("import sys; sys.exit(3)")
    assert "ended with status 3" in refused(capsys, "profile", script)


def test_bench_is_a_table(mlp: Path, capsys: Any) -> None:
    text = said(capsys, "bench", mlp / "m.onnx", "--seconds", 0.1)
    assert "median" in text and "svod" in text
    found = json.loads(said(capsys, "bench", mlp / "m.onnx", "--seconds", 0.1, "--json"))
    assert found["runtimes"][0]["runs"] >= 8
    if len(found["runtimes"]) == 2:
        assert found["error"] < 1e-5


def test_nothing_is_shown_of_progress_in_a_pipe(mlp: Path, capsys: Any) -> None:
    assert cli.main(["run", str(mlp / "m.onnx"), "--random"]) == 0
    assert capsys.readouterr().err == ""
