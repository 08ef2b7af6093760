"""Pytrees: nested lists, tuples, named tuples and dicts of tensors, flattened and rebuilt.

In: a structure. Out: its leaves in order, and a key of its form; equal keys mean equal forms, and
``unflatten`` puts other leaves into the form. Dicts are ordered by their keys. None has no leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple


class Form(NamedTuple):
    """The form of a structure: what it is made with and the forms inside."""

    kind: Any  # a class; None for a leaf or for nothing
    keys: tuple[Any, ...]
    parts: tuple[Form, ...]

    def __str__(self) -> str:
        if self is LEAF:
            return "*"
        inside = ", ".join([str(p) for p in self.parts])
        if self.kind is dict:
            inside = ", ".join([f"{k!r}: {p}" for k, p in zip(self.keys, self.parts, strict=True)])
            return "{" + inside + "}"
        if self.kind is None:
            return "None"
        return f"[{inside}]" if self.kind is list else f"({inside})"


LEAF = Form(None, ("leaf",), ())
NOTHING = Form(None, (), ())
_STRUCTURES = (tuple, list, dict, type(None))


def flatten(tree: Any) -> tuple[list[Any], Form]:
    """The leaves of a structure, and its form."""
    if type(tree) is tuple:
        for part in tree:
            if isinstance(part, _STRUCTURES):
                break
        else:
            return list(tree), _flat(len(tree))
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


@cache
def _flat(count: int) -> Form:
    """The form of so many leaves in a tuple, as most calls are."""
    return Form(tuple, (), (LEAF,) * count)


def _flatten(tree: Any, leaves: list[Any]) -> Form:
    kind = type(tree)
    if kind is tuple or kind is list:
        return Form(kind, (), tuple([_flatten(part, leaves) for part in tree]))
    if kind is dict:
        keys = tuple(sorted(tree, key=repr))
        return Form(dict, keys, tuple([_flatten(tree[key], leaves) for key in keys]))
    if tree is None:
        return NOTHING
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return Form(kind, (), tuple([_flatten(part, leaves) for part in tree]))
    leaves.append(tree)
    return LEAF


def unflatten(form: Form, leaves: Sequence[Any]) -> Any:
    """The structure of a form with these leaves."""
    return _unflatten(form, iter(leaves))


def _unflatten(form: Form, leaves: Iterator[Any]) -> Any:
    if form is LEAF or form == LEAF:
        return next(leaves)
    kind = form.kind
    if kind is None:
        return None
    parts = [_unflatten(part, leaves) for part in form.parts]
    if kind is dict:
        return dict(zip(form.keys, parts, strict=True))
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
