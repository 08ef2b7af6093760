"""Ensembles of trees, as tables of nodes that all rows and all trees walk at once.

The nodes of all trees are columns: a feature, a threshold, a comparison, and two nodes to go on to;
a leaf goes on to itself. A scan as long as the deepest tree moves an index for each row and tree,
and the leaf's weights are gathered and added up. A test of membership in a set becomes a chain of
tests of equality with one way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.ml_scores import (
    ML,
    both_classes,
    floats,
    labelled,
    labels,
    rows_of,
    transformed,
)  # fmt: skip
from svod.frontend.onnx.registry import Array, Tensor, operator

LEAF = 6
_MODES = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5, "LEAF": LEAF,
}  # fmt: skip
_MEMBER = 6  # in TreeEnsemble, which has no nodes that are leaves
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Forest:
    """The nodes of all trees; `weights` has what a node gives to each target, NaN for nothing."""

    roots: Array
    feature: Array
    threshold: Array
    mode: Array
    yes: Array
    no: Array
    missing: Array  # whether NaN takes the way of a test that holds
    weights: Array

    def depth(self) -> int:
        """The longest way from a root to a leaf."""
        level, steps = np.unique(self.roots), 0
        while (inner := level[self.mode[level] != LEAF]).size:
            level = np.unique(np.concatenate([self.yes[inner], self.no[inner]]))
            steps += 1
            if steps > len(self.mode):
                raise OnnxError("the nodes of a tree go in a circle")
        return steps

    def check(self, width: int) -> None:
        """Refuse nodes and features that are not there."""
        count = len(self.mode)
        for name, places, limit in (
            ("root", self.roots, count), ("node", self.yes, count), ("node", self.no, count),
            ("feature", self.feature, width),
        ):  # fmt: skip
            wrong = places[(places < 0) | (places >= limit)]
            if wrong.size:
                raise OnnxError(f"a tree has {name} {wrong[0]} of {limit}")

    def leaves(self, x: Tensor) -> Tensor:
        """The leaf that each row reaches in each tree: (rows, trees)."""
        self.check(x.shape[1])
        start = Tensor(self.roots.astype(np.int32)).reshape(1, -1)
        places = start.expand(x.shape[0], len(self.roots))
        yes, no = (Tensor(a.astype(np.int32)) for a in (self.yes, self.no))
        feature = Tensor(self.feature.astype(np.int32))
        threshold = Tensor(self.threshold)
        missing = Tensor(self.missing) if self.missing.any() else None
        modes = np.unique(self.mode[self.mode != LEAF])
        mode: Any = Tensor(self.mode.astype(np.int32)) if len(modes) > 1 else None

        def step(at: Tensor, _: Any) -> tuple[Tensor, tuple[()]]:
            value, bound = x.gather(1, feature[at].cast(dt.int64)), threshold[at]
            holds: Any = None
            for number in modes.tolist():
                here = _test(value, bound, number)
                holds = here if holds is None else svod.where(mode[at] == number, here, holds)
            if missing is not None:
                holds = holds | (missing[at] & value.isnan())
            return svod.where(holds, yes[at], no[at]), ()

        depth = self.depth()
        if isinstance(x.shape[0], int):
            return svod.scan(step, places, length=depth)[0] if depth else places
        for _ in range(depth):  # a scan has no run-time sizes; all levels share one kernel
            places = step(places, None)[0].contiguous()
        return places

    def total(self, x: Tensor, how: str = "SUM") -> Tensor:
        """What the trees say, for each row and target."""
        places = self.leaves(x)
        empty = np.isnan(self.weights)
        if how in ("MIN", "MAX"):
            none = np.inf if how == "MIN" else -np.inf
            found = Tensor(np.where(empty, none, self.weights))[places]
            found = found.amin(1) if how == "MIN" else found.amax(1)
            return svod.where(found == none, 0.0, found)
        found = Tensor(np.where(empty, 0, self.weights))[places]
        found = found.sum(1, dtype=dt.float64).cast(found.dtype)
        return found / len(self.roots) if how == "AVERAGE" else found


def _test(value: Tensor, bound: Tensor, mode: int) -> Tensor:
    if mode < 2:
        return value < bound if mode else value <= bound
    if mode < 4:
        return value >= bound if mode == 2 else value > bound
    return value == bound if mode == 4 else value != bound


def _placed(trees: Any, nodes: Any, index: dict[tuple[int, int], int]) -> Array:
    """Rows of the table for pairs of tree and node."""
    pairs = list(zip(trees, nodes, strict=True))
    unknown = [p for p in pairs if p not in index]
    if unknown:
        raise OnnxError(f"tree {unknown[0][0]} has no node {unknown[0][1]}")
    return np.array([index[p] for p in pairs], np.int64)


def _forest(values: dict[str, Any], what: str, targets: int) -> Forest:
    """The table from the attributes `nodes_*` and `class_*` or `target_*`."""
    trees, nodes = values["nodes_treeids"] or [], values["nodes_nodeids"] or []
    index = {pair: i for i, pair in enumerate(zip(trees, nodes, strict=True))}
    count = len(index)
    threshold = _numbers(values, "nodes_values")
    names = values["nodes_modes"] or []
    if count == 0 or count != len(trees) or {len(names), len(threshold)} != {count}:
        raise OnnxError("the attributes of the trees' nodes have different lengths")
    mode = np.array([_MODES[m] for m in names])
    own = np.arange(count)
    inner = np.flatnonzero(mode != LEAF)
    ways = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        chosen = values[name]
        way = own.copy()
        way[inner] = _placed([trees[i] for i in inner], [chosen[i] for i in inner], index)
        ways.append(way)
    reached = np.zeros(count, np.bool_)
    reached[[*ways[0][inner], *ways[1][inner]]] = True
    weights = _weights(values, what, (count, targets), index, threshold.dtype)
    missing = values["nodes_missing_value_tracks_true"] or [0] * count
    feature = np.where(mode == LEAF, 0, np.array(values["nodes_featureids"]))
    roots = np.flatnonzero(~reached)
    if not roots.size:
        raise OnnxError("no tree has a root: the nodes go in a circle")
    return Forest(
        roots, feature, threshold, mode, ways[0], ways[1], np.array(missing, np.bool_), weights
    )  # fmt: skip


def _weights(
    values: dict[str, Any], what: str, shape: tuple[int, int], index: Any, dtype: Any
) -> Array:
    given = _numbers(values, f"{what}_weights")
    places = _placed(values[f"{what}_treeids"] or [], values[f"{what}_nodeids"] or [], index)
    targets = np.array(values[f"{what}_ids"] or [], np.int64)
    if targets.size and not 0 <= targets.min() <= targets.max() < shape[1]:
        raise OnnxError(f"{what}_ids are from 0 to {shape[1] - 1}, not {targets.max()}")
    found = np.full(shape, np.nan, dtype)
    found[places, targets] = 0
    np.add.at(found, (places, targets), given)
    return found


def _numbers(values: dict[str, Any], name: str) -> Array:
    tensor = values.get(f"{name}_as_tensor")
    given = values.get(name)
    return tensor if tensor is not None else np.array(given or [], np.float32)


def _with_base(total: Tensor, values: dict[str, Any]) -> Tensor:
    base = _numbers(values, "base_values")
    return total + Tensor(base.astype(total.dtype.name)) if base.size else total


@operator("TreeEnsembleRegressor", domain=ML)
def tree_regressor(
    x: Tensor, *, aggregate_function: str = "SUM", post_transform: str = "NONE",
    n_targets: int = 1, base_values: Any = None, base_values_as_tensor: Any = None,
    nodes_treeids: Any = None, nodes_nodeids: Any = None, nodes_featureids: Any = None,
    nodes_values: Any = None, nodes_values_as_tensor: Any = None, nodes_modes: Any = None,
    nodes_truenodeids: Any = None, nodes_falsenodeids: Any = None, nodes_hitrates: Any = None,
    nodes_hitrates_as_tensor: Any = None, nodes_missing_value_tracks_true: Any = None,
    target_ids: Any = None, target_nodeids: Any = None, target_treeids: Any = None,
    target_weights: Any = None, target_weights_as_tensor: Any = None,
) -> Tensor:  # fmt: skip
    values = dict(locals())
    forest = _forest(values, "target", n_targets)
    total = _with_base(forest.total(rows_of(floats(x)), aggregate_function), values)
    return transformed(total, post_transform).cast(dt.float32)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_classifier(
    x: Tensor, *, post_transform: str = "NONE", base_values: Any = None,
    base_values_as_tensor: Any = None, classlabels_int64s: Any = None,
    classlabels_strings: Any = None, nodes_treeids: Any = None, nodes_nodeids: Any = None,
    nodes_featureids: Any = None, nodes_values: Any = None, nodes_values_as_tensor: Any = None,
    nodes_modes: Any = None, nodes_truenodeids: Any = None, nodes_falsenodeids: Any = None,
    nodes_hitrates: Any = None, nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Any = None, class_ids: Any = None, class_nodeids: Any = None,
    class_treeids: Any = None, class_weights: Any = None, class_weights_as_tensor: Any = None,
    node: NodeView,
) -> Any:  # fmt: skip
    values = dict(locals())
    names = labels(classlabels_int64s, classlabels_strings)
    is_single = len(names) == 2 and len(set(class_ids or [])) == 1
    if is_single:
        values["class_ids"] = [0] * len(class_ids)
        base = _numbers(values, "base_values")
        values |= {"base_values_as_tensor": base[-1:]}
    forest = _forest(values, "class", 1 if is_single else len(names))
    total = _with_base(forest.total(rows_of(floats(x))), values)
    if is_single:
        is_share = bool((_numbers(values, "class_weights") >= 0).all())
        chosen = total[:, 0] > (0.5 if is_share else 0.0)
        scores = both_classes(total, post_transform, is_share)
        return labelled(chosen.cast(dt.int64), names, node), scores.cast(dt.float32)
    scores = transformed(total, post_transform).cast(dt.float32)
    return labelled(total.argmax(-1), names, node), scores


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(
    x: Tensor, *, aggregate_function: int = 1, post_transform: int = 0, n_targets: int = 1,
    tree_roots: Any, nodes_modes: Any, nodes_splits: Any, nodes_featureids: Any,
    nodes_truenodeids: Any, nodes_falsenodeids: Any, nodes_trueleafs: Any, nodes_falseleafs: Any,
    leaf_targetids: Any, leaf_weights: Any, membership_values: Any = None,
    nodes_hitrates: Any = None, nodes_missing_value_tracks_true: Any = None,
) -> Tensor:  # fmt: skip
    """Inner nodes first in the table, then the leaves, then what sets are unrolled to."""
    inner, outer = len(nodes_splits), len(leaf_weights)
    count = inner + outer
    mode = np.concatenate([nodes_modes.astype(np.int64), np.full(outer, LEAF)])
    own = np.arange(count)
    ways = []
    for to, is_leaf in (
        (nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs),
    ):  # fmt: skip
        way = own.copy()
        way[:inner] = np.array(to) + inner * np.array(is_leaf)
        ways.append(way)
    weights = np.full((count, n_targets), np.nan, leaf_weights.dtype)
    weights[np.arange(inner, count), leaf_targetids] = leaf_weights
    missing = np.zeros(count, np.bool_)
    if nodes_missing_value_tracks_true:
        missing[:inner] = nodes_missing_value_tracks_true
    forest = Forest(
        np.array(tree_roots),
        np.concatenate([nodes_featureids, np.zeros(outer, np.int64)]),
        np.concatenate([nodes_splits, np.zeros(outer, nodes_splits.dtype)]),
        mode, ways[0], ways[1], missing, weights,
    )  # fmt: skip
    if membership_values is not None:
        _unroll_sets(forest, membership_values, inner)
    x = rows_of(floats(x) if x.dtype is not dt.float16 else x)
    total = forest.total(x, _AGGREGATES[aggregate_function])
    return transformed(total, _TRANSFORMS[post_transform]).cast(x.dtype)


def _unroll_sets(forest: Forest, members: Array, inner: int) -> None:
    """Each test of membership as tests of equality, one after the other."""
    sets = [s[~np.isnan(s)] for s in np.split(members, np.flatnonzero(np.isnan(members)) + 1)]
    extra: list[tuple[int, Any, int]] = []  # the node it copies, its value, where to go else
    count = len(forest.mode)
    for node, chosen in zip(np.flatnonzero(forest.mode[:inner] == _MEMBER), sets, strict=False):
        forest.mode[node] = 4
        otherwise = forest.no[node]
        forest.threshold[node] = chosen[0] if len(chosen) else np.nan
        for position, value in enumerate(chosen[1:]):
            following = count + len(extra) + 1
            is_last = position == len(chosen) - 2
            extra.append((int(node), value, otherwise if is_last else following))
        if len(chosen) > 1:
            forest.no[node] = count + len(extra) - len(chosen) + 1
    if not extra:
        return
    source = np.array([e[0] for e in extra])
    for name in ("feature", "mode", "yes", "missing", "weights"):
        column = getattr(forest, name)
        setattr(forest, name, np.concatenate([column, column[source]]))
    forest.threshold = np.concatenate(
        [forest.threshold, np.array([e[1] for e in extra], forest.threshold.dtype)]
    )
    forest.no = np.concatenate([forest.no, np.array([e[2] for e in extra])])
