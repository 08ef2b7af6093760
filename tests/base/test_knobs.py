from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from svod.base.errors import ConfigError
from svod.base.knobs import Knob, Knobs, all_knobs, codegen_key, find, knobs, unknown_variables

GOOD = {
    "SVOD_DEBUG": ("3", 3),
    "SVOD_DEVICE": ("NULL", "NULL"),
    "SVOD_THREADS": ("7", 7),
    "SVOD_CACHE_DIR": ("/some/where", "/some/where"),
    "SVOD_OBJECT_CACHE": ("off", False),
    "SVOD_OBJECT_CACHE_BYTES": ("64MiB", 64 << 20),
    "SVOD_DISABLE_SCHEDULE_CACHE": ("1", True),
    "SVOD_OPT_CACHE_MAX": ("17", 17),
    "SVOD_MEMORY_PLANNER": ("pool", "remap"),
    "SVOD_OPTIMIZE": ("0", False),
    "SVOD_BF16_DOT": ("0", False),
    "SVOD_TENSOR_CORES": ("mma", "mma"),
    "SVOD_TF32": ("1", True),
    "SVOD_VERIFY": ("yes", True),
    "SVOD_FALLBACK": ("0", False),
    "SVOD_CHECK_INDICES": ("0", False),
    "SVOD_MACHINE": ("AVX2", "avx2"),
    "SVOD_TOP": ("1", True),
    "SVOD_BEAM": ("4", 4),
    "SVOD_ORIGINS": ("0", False),
    "SVOD_WARN_RECOMPILE": ("8", 8),
    "SVOD_REPR": ("lazy", "lazy"),
    "SVOD_TUNED": ("0", False),
}

BAD = {
    "SVOD_DEBUG": ["7", "-1", "loud", "1.5"],
    "SVOD_THREADS": ["-1", "two"],
    "SVOD_OBJECT_CACHE": ["2", "maybe"],
    "SVOD_OBJECT_CACHE_BYTES": ["-1", "1X", "G", "many"],
    "SVOD_DISABLE_SCHEDULE_CACHE": ["10"],
    "SVOD_MEMORY_PLANNER": ["clever"],
    "SVOD_OPTIMIZE": ["x"],
    "SVOD_BF16_DOT": ["half"],
    "SVOD_TENSOR_CORES": ["wgmma"],
    "SVOD_TF32": ["maybe"],
    "SVOD_VERIFY": ["x"],
    "SVOD_FALLBACK": ["x"],
    "SVOD_CHECK_INDICES": ["x"],
    "SVOD_MACHINE": ["pentium"],
    "SVOD_TOP": ["often"],
    "SVOD_BEAM": ["-2", "wide"],
    "SVOD_TUNED": ["x"],
}


def test_every_knob_has_a_default_that_it_accepts_and_a_meaning() -> None:
    assert {knob.name for knob in all_knobs()} == set(GOOD)
    for knob in all_knobs():
        assert knob.doc.endswith(".")
        assert knob.check(knob.default) == knob.default
        assert getattr(knobs, knob.attribute) == knob.default
        assert knobs.source(knob) == "default"


@pytest.mark.parametrize("name", GOOD)
def test_the_environment_gives_the_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = GOOD[name]
    monkeypatch.setenv(name, text)
    knobs.refresh()
    assert getattr(knobs, find(name).attribute) == value
    assert knobs.source(find(name)) == "environment"


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in BAD.items() for t in texts])
def test_a_malformed_value_is_refused_by_name(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    knobs.refresh()
    knob = find(name)
    with pytest.raises(ConfigError) as caught:
        getattr(knobs, knob.attribute)
    assert str(caught.value) == f"{name}={text!r} is not valid: use {knob.accepts}"


def test_error_texts() -> None:
    with pytest.raises(ConfigError, match=r"^SVOD_DEBUG='9' is not valid: use a whole number from"):
        knobs.debug = 9
    with pytest.raises(ConfigError, match=r"SVOD_OBJECT_CACHE='maybe' is not valid: use 0 or 1$"):
        find("object_cache").check("maybe")
    with pytest.raises(ConfigError, match=r"use one of arena, remap, pool, 0, off, none, disabled"):
        find("memory_planner").check("clever")
    with pytest.raises(ConfigError, match=r"there is no knob 'SVOD_DEBG'; SVOD_\* are: debug, "):
        find("SVOD_DEBG")


@pytest.mark.parametrize("text", ["0", "-5", "many", ""])
def test_a_malformed_opt_cache_limit_means_the_default(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SVOD_OPT_CACHE_MAX", text)
    knobs.refresh()
    assert knobs.opt_cache_max == 4096


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVOD_DEBUG", " ")
    knobs.refresh()
    assert knobs.debug == 0
    assert knobs.source(find("debug")) == "default"


def test_the_environment_is_read_once_and_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVOD_DEBUG", "2")
    fresh = Knobs()
    assert "debug" not in vars(fresh)
    assert fresh.debug == 2
    assert vars(fresh)["debug"] == 2, "later reads are plain attribute accesses"
    monkeypatch.setenv("SVOD_DEBUG", "3")
    assert fresh.debug == 2
    fresh.refresh()
    assert fresh.debug == 3


def test_assignment_wins_over_the_environment_until_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SVOD_BEAM", "2")
    knobs.refresh()
    knobs.beam = 5
    assert knobs.beam == 5
    assert knobs.source(find("beam")) == "code"
    del knobs.beam
    assert knobs.beam == 2


def test_an_attribute_that_is_no_knob_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match="no knob 'debgu'"):
        knobs.debgu = 1
    with pytest.raises(AttributeError):
        _ = knobs.debgu  # type: ignore[attr-defined]


def test_scopes_nest_and_end_with_exceptions() -> None:
    with knobs.scope(DEBUG=2, SVOD_THREADS=3, verify=True):
        assert (knobs.debug, knobs.threads, knobs.verify) == (2, 3, True)
        assert knobs.source(find("debug")) == "scope"
        with pytest.raises(KeyError), knobs.scope(debug=4):
            assert (knobs.debug, knobs.threads) == (4, 3)
            raise KeyError
        assert knobs.debug == 2
    assert (knobs.debug, knobs.threads, knobs.verify) == (0, 0, False)


def test_a_refused_scope_changes_nothing() -> None:
    with pytest.raises(ConfigError), knobs.scope(debug=3, beam="x"):
        pass
    assert knobs.debug == 0


def test_scopes_of_threads_may_overlap_without_nesting() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with knobs.scope(beam=7):
            inside.set()
            leave.wait(10)

    worker = threading.Thread(target=other)
    with knobs.scope(beam=3):
        worker.start()
        assert inside.wait(10)
        assert knobs.beam == 7
    assert knobs.beam == 7, "the scope of the other thread is still open"
    leave.set()
    worker.join()
    assert knobs.beam == 0


def test_many_threads_leave_no_scope_behind() -> None:
    def work(width: int) -> None:
        for _ in range(300):
            with knobs.scope(beam=width):
                assert 1 <= knobs.beam <= 4

    workers = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert knobs.beam == 0


def test_every_knob_that_affects_codegen_changes_the_key_and_no_other_does() -> None:
    base = codegen_key()
    units = "tensor_cores='auto';tf32=False"
    assert base == f"optimize=True;machine='host';bf16_dot=True;{units};beam=0;tuned=True"
    for knob in all_knobs():
        text, value = GOOD[knob.name]
        assert value != knob.default
        with knobs.scope(**{knob.name: text}):
            assert (codegen_key() != base) == knob.affects_codegen, knob.name
        assert codegen_key() == base


def test_unknown_variables_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVOD_DEBG", "1")
    assert unknown_variables() == ["SVOD_DEBG"]


def test_the_class_gives_the_declaration() -> None:
    assert isinstance(Knobs.debug, Knob)
    assert repr(Knobs.debug) == "Knob(SVOD_DEBUG, default=0)"


def test_reading_knobs_does_not_import_llvmlite() -> None:
    program = (
        "import sys, svod.base.errors, svod.base.knobs, svod.base.paths\n"
        "assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
