"""Write what type checkers see: ``python docs/stubs.py``.

Methods and functions that tables make have no ``def`` that a checker could read. Their signatures
are read from the running package here, with the annotations of the functions that do the work, and
written to ``.pyi`` files beside the modules. A test compares the files with the package.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import svod
from svod.public import PUBLIC
from svod.tensor import _tensor as made_tensor
from svod.tensor import tensor as tensor_module
from svod.tensor.core import public_functions as spelling
from svod.tensor.namespace import functions, method_functions

Parameter = inspect.Parameter
KEYWORD, POSITIONAL = Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_ONLY
REST, OPTIONS = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD

# Types of arguments in tables, where no function says them.
TYPES = {
    "inplace": "bool", "size_average": "bool | None", "reduce": "bool | None",
    "_stacklevel": "int", "out": "None", "input": "Tensor", "tensor": "Tensor", "query": "Tensor",
    "anchor": "Tensor", "x1": "Tensor", "input1": "Tensor", "distance_function": "Callable | None",
    "norm_type": "float", "return_indices": "bool", "training": "bool", "dim": "int | None",
}  # fmt: skip
# What functions return whose source says Any.
RETURNS = {
    "adaptive_max_pool1d": "Any", "is_floating_point": "bool", "promote_types": "DType",
    "realize": "None", "jit": "Any",
}  # fmt: skip
MODULES = (
    "svod.nn.functional", "svod.linalg", "svod.fft", "svod.special", "svod.masked",
    "svod.signal.windows",
)  # fmt: skip
HEAD = "# Written by docs/stubs.py: do not edit.\n"


# -- annotations ---------------------------------------------------------------------------------


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Where the names of a module come from, also those that are imported for types only."""
    source = Path(import_module(module).__file__ or "").read_text(encoding="utf-8")
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                found[name.asname or name.name] = (node.module, name.name)
        elif isinstance(node, ast.Import):
            for name in node.names:
                found[name.asname or name.name] = (name.name, "")
    for node in ast.parse(source).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = (module, node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = (module, target.id)
    return found


class Stub:
    """The text of one file and the imports it needs."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.imports: set[str] = {"import builtins as _b", "from typing import Any as _Any"}
        self.lines: list[str] = []

    def text(self) -> str:
        body = "\n".join(self.lines)
        return HEAD + "# ruff: noqa\n\n" + "\n".join(sorted(self.imports)) + f"\n\n{body}\n"

    def annotation(self, text: str, module: str) -> str:
        """An annotation from a module, in the names of this file."""
        tree = ast.parse(text, mode="eval")
        return ast.unparse(_Renamed(self, module).visit(tree))

    def alias(self, module: str, name: str) -> str:
        """The name here of what a module holds."""
        if module == self.module:
            return name
        if not name:
            short = "_" + module.replace(".", "_")
            self.imports.add(f"import {module} as {short}")
            return short
        self.imports.add(f"from {module} import {name} as _{name.lstrip('_')}")
        return f"_{name.lstrip('_')}"


class _Renamed(ast.NodeTransformer):
    def __init__(self, stub: Stub, module: str) -> None:
        self.stub, self.module = stub, module

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        where = imported(self.module).get(node.id)
        if where is None and hasattr(builtins, node.id):
            return ast.Name(f"_b.{node.id}")
        if where is None and node.id in ("Any", "Callable"):
            where = ("typing" if node.id == "Any" else "collections.abc", node.id)
        if where is None and node.id in ("Tensor", "DType"):
            where = ("svod.tensor.tensor", node.id)
        if where is None:
            raise NameError(f"{self.module} does not say what {node.id} is")
        if where == ("collections.abc", "Callable") and not isinstance(node, ast.Subscript):
            return ast.Name(self.stub.alias(*where))
        return ast.Name(self.stub.alias(*where))


# -- signatures ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A parameter as it is written."""

    name: str
    kind: Any
    type: str
    default: str | None

    def __str__(self) -> str:
        star = {REST: "*", OPTIONS: "**"}.get(self.kind, "")
        return f"{star}{self.name}: {self.type}" + (f" = {self.default}" if self.default else "")


def literal(value: Any) -> str:
    """A default where it is plain, else three dots."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    if plain or (isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value)):
        text = repr(value)
        return "..." if "inf" in text or "nan" in text else text
    return "..."


def true_function(function: Any) -> FunctionType:
    """The function that does the work of one that is made by tables and wrappers."""
    found = inspect.unwrap(function)
    if not isinstance(found, FunctionType):
        raise TypeError(f"{function!r} is no function")
    return found


def parameters(stub: Stub, function: Any, method: Any = None) -> list[Written]:
    """The parameters of a function; ``method`` says the types where its own signature does not."""
    inner = true_function(function)
    typed = true_function(method) if method is not None else inner
    found = []
    for p in inspect.signature(inner).parameters.values():
        written = inner.__annotations__.get(p.name)
        module = inner.__module__
        if written is None and method is not None:
            written, module = typed.__annotations__.get(p.name), typed.__module__
        if written is None:
            written = TYPES.get(p.name, "Any")
            if p.name not in TYPES and isinstance(p.default, (bool, float, str)):
                written = type(p.default).__name__
        elif not isinstance(written, str):
            written = getattr(written, "__name__", "Any")
        default = _default(p)
        found.append(Written(p.name, p.kind, stub.annotation(written, module), default))
    return found


def result(stub: Stub, name: str, function: Any, method: Any = None) -> str:
    """What a function returns."""
    for source in (true_function(function), method and true_function(method)):
        if source is not None and "return" in source.__annotations__:
            written = source.__annotations__["return"]
            if written == "Any" and name in RETURNS:
                written = RETURNS[name]
            if not isinstance(written, str):
                written = getattr(written, "__name__", "None")
            return stub.annotation(written, source.__module__)
    return stub.annotation(RETURNS.get(name, "Any"), "svod.tensor.tensor")


def spellings(function: Any, given: list[Written]) -> dict[str, str]:
    """Other names of parameters that calls may use: other name to own name."""
    if not any(hasattr(f, "is_public") for f in _chain(function)):
        return {}
    takes = {p.name for p in given if p.kind not in (POSITIONAL, OPTIONS)}
    found: dict[str, str] = {}
    for own, other in spelling._SPELLINGS:
        if own in takes and other not in {p.name for p in given}:
            found.setdefault(other, own)
    return found


def _chain(function: Any) -> Iterable[Any]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def forms(function: Any, given: list[Written], name: str) -> list[list[Written]]:
    """All ways to call: with other spellings of keywords, and with torch's extra ones."""
    others = spellings(function, given)
    own = {p.name: p for p in given}
    required = {o: n for o, n in others.items() if own[n].default is None and own[n].kind != REST}
    extra = [
        Written(o, KEYWORD, own[n].type if own[n].kind != REST else "_Any", "...")
        for o, n in others.items() if o not in required
    ]  # fmt: skip
    has_options = any(p.kind == OPTIONS for p in given)
    is_constructor = name in spelling._CONSTRUCTORS and not has_options
    if is_constructor and "requires_grad" not in own:
        extra.append(Written("requires_grad", KEYWORD, "_b.bool", "False"))
    if has_options:
        extra = []
    found = [[*given, *extra]]
    for other, mine in required.items():
        form = [replace(p, name=other) if p.name == mine else p for p in given]
        place = [p.name for p in form].index(other)
        keywords = [
            replace(p, kind=KEYWORD) if i >= place and p.kind not in (REST, OPTIONS) else p
            for i, p in enumerate(form)
        ]
        found.append([*keywords, *extra])
    return found


def line(name: str, given: list[Written], returns: str) -> str:
    """One definition."""
    order = {POSITIONAL: 0, Parameter.POSITIONAL_OR_KEYWORD: 1, REST: 2, KEYWORD: 3, OPTIONS: 4}
    ordered = sorted(given, key=lambda p: order[p.kind])
    parts: list[str] = []
    kinds = [p.kind for p in ordered]
    for i, p in enumerate(ordered):
        if p.kind == KEYWORD and REST not in kinds and kinds.index(KEYWORD) == i:
            parts.append("*")
        parts.append(str(p))
        if p.kind == POSITIONAL and kinds.count(POSITIONAL) == i + 1:
            parts.append("/")
    return f"def {name}({', '.join(parts)}) -> {returns}: ..."


def definitions(
    name: str, every: list[tuple[list[Written], str]], indent: str = "", lead: str = ""
) -> list[str]:
    """A definition, or overloads of it: the first that fits a call says what it returns."""
    unique = list(dict.fromkeys([line(name, given, returns) for given, returns in every]))
    mark = [f"{indent}@_overload"] if len(unique) > 1 else []
    returns = {text.rpartition("->")[2] for text in unique}
    if len(returns) > 1:
        unique = [f"{unique[0]}  # type: ignore[overload-overlap]", *unique[1:]]
    dressed = [f"{indent}{lead}"] if lead else []
    return [part for text in unique for part in (*mark, *dressed, indent + text)]


# -- files ---------------------------------------------------------------------------------------


def function(stub: Stub, name: str, value: Any) -> list[str]:
    """A function of a namespace."""
    stub.imports.add("from typing import overload as _overload")
    every = []
    sources = [value]
    if stub.module == "svod" and name in functions._TORCH_FORMS:
        sources.append(method_functions.forward(name, name))
    for source in sources:
        method = None
        inner = true_function(source)
        if inner.__name__ == "<lambda>" or (inner.__name__ == name and not inner.__annotations__):
            method = getattr(svod.Tensor, name.rstrip("_"), None)
        given = parameters(stub, source, method)
        if given and given[0].name == "self":
            given[0] = Written(
                "input", given[0].kind, stub.alias("svod.tensor.core.tensor_core", "Operand"), None
            )
        returns = result(stub, name, source, method)
        every += [(form, returns) for form in forms(source, given, name)]
    return definitions(name, every)


def tensor_stub() -> str:
    """The class of tensors with all methods, also those that tables add."""
    stub = Stub("svod.tensor.tensor")
    stub.imports |= {
        "from svod.dtype.types import DType as DType",
        "from svod.tensor.core.tensor_core import Core as _Core",
        "from typing import overload as _overload",
    }
    stub.lines += ["IN_PLACE: _b.dict[_b.str, _b.str]", "", "class Count(_b.int):"]
    stub.lines += ["    shape: _b.tuple[_b.int, ...]"]
    stub.lines += ["    def __call__(self, dim: _b.int | None = None) -> _Any: ..."]
    stub.lines += ["", "class Tensor(_Core):"]
    cls = tensor_module.Tensor
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        if value is getattr(object, name, None) or isinstance(value, type(object.__init__)):
            continue
        if isinstance(value, property):
            stub.lines += _property(stub, name, value)
        elif isinstance(value, (FunctionType, staticmethod, classmethod)):
            stub.lines += _method(stub, name, value)
    stub.lines += ["    grad: Tensor | None", "    requires_grad: _b.bool", ""]
    stub.lines += ["def in_place(method: _Any, name: _b.str) -> _Any: ..."]
    kept = [text for text in stub.lines if not text.startswith(("    grad:", "    requires_grad:"))]
    stub.lines = stub.lines if "    @property\n    def grad" not in stub.text() else kept
    return stub.text()


def _property(stub: Stub, name: str, value: property) -> list[str]:
    getter: Any = value.fget
    returns = result(stub, name, getter)
    lines = ["    @property", f"    def {name}(self) -> {returns}: ..."]
    if value.fset is not None:
        given = parameters(stub, value.fset)[1]
        lines += [f"    @{name}.setter", f"    def {name}(self, value: {given.type}) -> None: ..."]
    return lines


def _method(stub: Stub, name: str, value: Any) -> list[str]:
    lead = ""
    if isinstance(value, (staticmethod, classmethod)):
        lead = "@" + type(value).__name__
        value = value.__func__
    if not hasattr(value, "__code__"):
        return [f"    {name}: _Any"]
    given = parameters(stub, value)
    if not lead or lead == "@classmethod":
        given[0] = Written("self" if not lead else "cls", given[0].kind, "", None)
    every = [(form, result(stub, name, value)) for form in forms(value, given, name)]
    lines = definitions(name, every, "    ", lead)
    lines = [text.replace("(self: ", "(self").replace("(cls: ", "(cls") for text in lines]
    if name == "__hash__":
        return []
    return lines


def namespace_stub(module: str) -> str:
    """A module of functions."""
    stub = Stub(module)
    found = import_module(module)
    for name in PUBLIC[module].split():
        value = getattr(found, name)
        if isinstance(value, type):
            stub.imports.add(f"from {value.__module__} import {value.__name__} as {name}")
        elif isinstance(value, ModuleType):
            stub.imports.add(f"from {module} import {name} as {name}")
        else:
            stub.lines += function(stub, name, value)
    return stub.text()


def root_stub() -> str:
    """The namespace `svod`."""
    stub = Stub("svod")
    stub.imports |= {"from typing import overload as _overload"}
    names = functions.NAMESPACE
    from svod.dtype.types import DType

    for name in PUBLIC["svod"].split():
        value = getattr(svod, name) if name != "torch" else svod
        if name in svod._LAZY and not svod._LAZY[name][1]:
            where = svod._LAZY[name][0]
            folder, _, last = where.rpartition(".")
            if name == "tensor":
                stub.lines += function(stub, name, made_tensor)
                stub.lines[-1] = stub.lines[-1].replace("-> _Any", "-> _Tensor")
                stub.alias("svod.tensor.tensor", "Tensor")
                continue
            stub.imports.add(f"from {folder} import {last} as {name}")
        elif name in svod._LAZY:
            where, attribute = svod._LAZY[name]
            stub.imports.add(f"from {where} import {attribute} as {name}")
        elif isinstance(value, DType):
            stub.alias("svod.dtype.types", "DType")
            stub.lines.append(f"{name}: _DType")
        elif name == "Size":
            stub.lines.append("Size = _b.tuple[_b.int, ...]")
        elif value is None or isinstance(value, (float, str)):
            stub.lines.append(
                f"{name}: {'None' if value is None else '_b.' + type(value).__name__}"
            )
        elif isinstance(value, type):
            stub.imports.add(f"from {value.__module__} import {value.__name__} as {name}")
        elif name in names and name == "jit":
            stub.lines += _jit(stub)
        elif name in names:
            stub.lines += function(stub, name, value)
        else:
            raise NameError(f"svod.{name} is public and not known here")
    stub.lines.append("__array_api_version__: _b.str")
    return stub.text()


def _jit(stub: Stub) -> list[str]:
    """A decorator with and without options."""
    from svod.tensor.recording.jit import jit

    stub.imports |= {
        "from typing import TypeVar as _TypeVar",
        "from collections.abc import Callable as _Callable",
        "from typing import Protocol as _Protocol",
        "from svod.tensor.recording.jit import Jit as _Jit",
    }  # fmt: skip
    options = [p for p in parameters(stub, jit) if p.kind == KEYWORD]
    plain = [Written("function", POSITIONAL, "_Callable[..., _R]", None), *options]
    bare = [Written("function", POSITIONAL, "None", "None"), *options]
    return [
        '_R = _TypeVar("_R")',
        "class _Decorator(_Protocol):",
        "    def __call__(self, function: _Callable[..., _R], /) -> _Jit[_R]: ...",
        "@_overload", line("jit", plain, "_Jit[_R]"),
        "@_overload", line("jit", bare, "_Decorator"),
    ]  # fmt: skip


def classes_stub(module: str) -> str:
    """Modules that tables make: classes with their constructors."""
    stub = Stub(module)
    found = import_module(module)
    for name in found.__all__:
        cls = getattr(found, name)
        base = cls.__mro__[1]
        lead = f"_{base.__name__.lstrip('_')}" if base.__module__ != module else base.__name__
        if base.__module__ != module:
            stub.alias(base.__module__, base.__name__)
        elif base.__name__ not in found.__all__:
            stub.alias("svod.nn.module", "Module")
            lead = "_Module"
        stub.lines += [f"class {name}({lead}):"]
        stub.lines += [f"    {line('__init__', _constructor(stub, cls), 'None')}"]
    return stub.text()


def _constructor(stub: Stub, cls: type) -> list[Written]:
    itself = Written("self", Parameter.POSITIONAL_OR_KEYWORD, "_Any", None)
    read = cls.__dict__.get("read")
    if read is not None:
        called = getattr(svod.nn.functional, cls.function, None)  # type: ignore[attr-defined]
        method = getattr(svod.Tensor, cls.function, None)  # type: ignore[attr-defined]
        source = method or (called if true_function(called).__annotations__ else None)
        return [itself, *parameters(stub, read.__func__, source)]
    if "becomes" in cls.__dict__:
        kept = cls.arguments.parameters  # type: ignore[attr-defined]
        full = parameters(stub, cls.becomes.__init__)  # type: ignore[attr-defined]
        return [itself, *[
            replace(p, default=_default(kept[p.name])) for p in full if p.name in kept
        ]]  # fmt: skip
    return [itself, *parameters(stub, cls.__init__)[1:]]


def _default(parameter: inspect.Parameter) -> str | None:
    return None if parameter.default is Parameter.empty else literal(parameter.default)


def exports_stub(module: str) -> str:
    """A package that only gives names."""
    stub = Stub(module)
    stub.imports.clear()
    found = import_module(module)
    for name in PUBLIC[module].split():
        value = getattr(found, name)
        if f"{module}.{name}" in PUBLIC:
            stub.imports.add(f"from {module} import {name} as {name}")
        elif isinstance(value, ModuleType):
            folder, _, last = value.__name__.rpartition(".")
            stub.imports.add(f"from {folder} import {last} as {name}")
        else:
            inner = inspect.unwrap(value)
            stub.imports.add(f"from {inner.__module__} import {inner.__name__} as {name}")
    return stub.text()


def _namespace(name: str) -> Callable[[], str]:
    return lambda: namespace_stub(name)


FILES: dict[str, Callable[[], str]] = {
    "svod/__init__.pyi": root_stub,
    "svod/tensor/tensor.pyi": tensor_stub,
    "svod/nn/__init__.pyi": lambda: exports_stub("svod.nn"),
    "svod/nn/activations.pyi": lambda: classes_stub("svod.nn.activations"),
    "svod/nn/lazy.pyi": lambda: classes_stub("svod.nn.lazy"),
    "svod/optim/__init__.pyi": lambda: exports_stub("svod.optim"),
    **{f"{name.replace('.', '/')}.pyi": _namespace(name) for name in MODULES},
}


def main() -> int:
    """Write every file that has changed."""
    for name, make in FILES.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
