"""No module of Svod needs a module that needs it, not even by an import inside a function."""

from __future__ import annotations

from pathlib import Path

import svod
from tests.base.import_graph import cycles, import_graph, rooms

GRAPH = import_graph(Path(svod.__file__).parent)


def test_no_module_imports_one_that_needs_it():
    found = cycles(GRAPH)
    assert not found, f"these import each other: {found}"


def test_subpackages_of_tensor_import_one_way():
    found = cycles(rooms(GRAPH, "svod.tensor"))
    assert not found, f"these subpackages import each other: {found}"


def test_imports_inside_functions_count_and_those_for_types_do_not(tmp_path):
    package = tmp_path / "made"
    (package / "inner").mkdir(parents=True)
    texts = {
        "__init__": "from made import low",
        "low": "def use():\n    from made.inner import high\n",
        "middle": "from made import low\n",
        "inner/__init__": "",
        "inner/high": "from made.middle import thing\n",
        "typed": "if TYPE_CHECKING:\n    import made.typing_user\n",
        "typing_user": "from made import typed\n",
        "by_name": "from importlib import import_module\nimport_module('made.named')\n",
        "named": "from .by_name import thing\n",
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    graph = import_graph(package)
    assert cycles(graph) == [
        ["made.by_name", "made.named"],
        ["made.inner.high", "made.low", "made.middle"],
    ]
    assert cycles(rooms(graph, "made"))[1] == ["made.inner", "made.low", "made.middle"]
