"""Docstrings of public names: the summary from the source, arguments and an example from texts.

In: a function or class with its one-line docstring. Out: the same with a ``__doc__`` that `help`
shows in full. It costs microseconds a name, and happens when the module of the name is imported.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from svod.reference import texts

_SELF = ("self", "cls")
_MARK = "\n\nExample:\n"  # before the example
_REST, _OPTIONS = 4, 8  # flags of code


def describe(namespace: dict[str, Any], place: str, names: list[str] | None = None) -> None:
    """Complete the docstrings of a module's public names."""
    for name in names or namespace["__all__"]:
        describe_one(namespace[name], place, name)


def describe_class(cls: type, place: str) -> None:
    """Complete the docstrings of the methods of a class."""
    for name in dir(cls):
        if not name.startswith("_"):
            base = next(c for c in cls.__mro__ if name in vars(c))
            describe_one(vars(base)[name], place, name)


def describe_one(value: Any, place: str, name: str) -> None:
    """Complete the docstring of one name."""
    target = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    if not isinstance(target, (type, FunctionType, property)) or not target.__doc__:
        return
    if sys.flags.optimize > 1:  # docstrings are not wanted
        return
    if isinstance(target, FunctionType) and target.__name__ != name and _MARK in target.__doc__:
        return  # another name of the same function, which has its text already
    text = summary(target.__doc__)
    parts = [text]
    arguments = [(a, texts.argument(name, a, kind)) for a, kind in parameters(target).items()]
    if arguments:
        parts.append("Arguments:\n" + "\n".join([f"    {a}: {text}" for a, text in arguments]))
    if ">>>" not in text:
        is_static = target is not value
        shown = texts.example(place, name, is_static)
        if shown:
            parts.append(_MARK.lstrip() + "    " + shown.replace("\n", "\n    "))
    target.__doc__ = "\n\n".join(parts)


def summary(text: str) -> str:
    """A docstring without what this module adds, and without the indent of its source."""
    first, _, rest = text.partition("\n")
    lines = rest.split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    cut = min(indents, default=0)
    whole = "\n".join([first.strip(), *[line[cut:].rstrip() for line in lines]]).strip()
    for mark in ("\n\nArguments:\n", _MARK):
        whole = whole.partition(mark)[0]
    return whole


def parameters(target: Any) -> dict[str, str]:
    """The arguments of a function, or of a constructor, with their types as written."""
    if isinstance(target, property):
        return {}
    if isinstance(target, type):
        return _of_constructor(target)
    return _of_code(_innermost(target))


def _of_constructor(cls: type) -> dict[str, str]:
    if issubclass(cls, BaseException) or hasattr(cls, "__members__"):  # errors and enumerations
        return {}
    if "arguments" in cls.__dict__:
        return dict.fromkeys(cls.arguments.parameters, "")  # type: ignore[attr-defined]
    if hasattr(cls, "_fields"):
        return dict.fromkeys(cls._fields, "")
    if "read" in cls.__dict__:
        return _of_code(cls.__dict__["read"].__func__)
    made = _innermost(cls.__init__)  # type: ignore[misc]
    return _of_code(made) if isinstance(made, FunctionType) else {}


def _innermost(function: Any) -> Any:
    """The function below all wrappers."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _of_code(function: Any) -> dict[str, str]:
    code, kinds = function.__code__, function.__annotations__
    count = code.co_argcount + code.co_kwonlyargcount
    more = bool(code.co_flags & _REST) + bool(code.co_flags & _OPTIONS)
    names = code.co_varnames[: count + more]
    return {name: str(kinds.get(name, "")) for name in names if name not in _SELF}
