from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from svod._version import __version__
from svod.base.knobs import all_knobs


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SVOD_")}
    return subprocess.run(
        [sys.executable, "-m", "svod", *arguments],
        capture_output=True,
        text=True,
        env={**clean, **variables},
    )


def test_help_names_every_verb() -> None:
    result = run("--help")
    assert result.returncode == 0
    verbs = (
        "bench",
        "bench-llm",
        "chat",
        "compile",
        "demo",
        "doctor",
        "env",
        "explain",
        "generate",
        "inspect",
        "profile",
        "run",
        "serve",
    )
    for verb in verbs:
        assert verb in result.stdout
    assert run("env", "--help").returncode == 0


def test_without_a_verb_the_help_is_printed() -> None:
    result = run()
    assert result.returncode == 2
    assert result.stdout.startswith("usage: svod")


def test_an_unknown_verb_is_refused() -> None:
    result = run("dance")
    assert result.returncode == 2
    assert "invalid choice: 'dance'" in result.stderr


def test_the_version() -> None:
    assert run("--version").stdout == f"svod {__version__}\n"


def test_env_lists_every_knob_with_its_meaning() -> None:
    result = run("env")
    assert result.returncode == 0
    assert "SVOD_DEBUG = 0\n" in result.stdout
    assert "SVOD_OPTIMIZE = 1\n" in result.stdout
    assert "Affects codegen and numerics." in " ".join(result.stdout.split())
    for knob in all_knobs():
        assert f"{knob.name} = " in result.stdout


def test_env_as_json() -> None:
    result = run("env", "--json", SVOD_THREADS="3")
    assert result.returncode == 0
    report = json.loads(result.stdout)
    listed = {knob["name"]: knob for knob in report["knobs"]}
    assert set(listed) == {knob.name for knob in all_knobs()}
    assert listed["SVOD_THREADS"]["value"] == 3
    assert listed["SVOD_THREADS"]["default"] == 0
    assert listed["SVOD_THREADS"]["source"] == "environment"
    assert listed["SVOD_OPTIMIZE"]["affects_codegen"] is True
    assert all(knob["doc"] for knob in report["knobs"])


def test_env_shows_where_a_value_comes_from() -> None:
    assert "SVOD_THREADS = 3  (environment; default 0)\n" in run("env", SVOD_THREADS="3").stdout


def test_env_reports_a_refused_value_and_still_lists_the_rest() -> None:
    result = run("env", SVOD_THREADS="lots")
    assert result.returncode == 1
    expected = "SVOD_THREADS: error: SVOD_THREADS='lots' is not valid: use a whole number of at"
    assert expected in result.stdout
    assert "SVOD_BEAM = 0" in result.stdout


def test_env_points_out_misspelt_variables() -> None:
    result = run("env", SVOD_THREDS="2")
    complaint = "SVOD_THREDS is set, but there is no such variable; did you mean SVOD_THREADS?"
    assert complaint in result.stdout
    report = json.loads(run("env", "--json", SVOD_THREDS="2").stdout)
    assert report["unknown"] == {"SVOD_THREDS": "SVOD_THREADS"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["env"], ["env", "--json"], ["doctor", "--help"], ["run", "--help"]]
)
def test_help_and_env_do_not_load_llvm(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from svod.tools.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "loaded = {'llvmlite', 'onnx', 'torch'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_an_error_of_svod_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from svod.base.errors import DeviceError
    from svod.tools import cli, environment

    def fail() -> None:
        raise DeviceError("no device 'TPU'; there are CPU, NULL")

    monkeypatch.setattr(environment, "environment", fail)
    assert cli.main(["env"]) == 1
    assert capsys.readouterr().err == (
        "svod env: DeviceError: no device 'TPU'; there are CPU, NULL\n"
    )
