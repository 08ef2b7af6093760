"""Losses of torch.nn.functional."""

from __future__ import annotations

from tests.torch.table import (
    FLOATS,
    WIDE,
    add,
    bad,
    ids,
    lit,
    pos,
    x,
)  # fmt: skip

F = {"_forms": "f"}
_CLASSES = ids(0, 2, 1)
_SIGNS = lit(1.0, -1.0, 1.0, grad=False)

for how in ("mean", "sum", "none"):
    add("mse_loss l1_loss", x(3, 4), x(3, 4), reduction=how, _dtypes=WIDE, **F)
    add("smooth_l1_loss", x(3, 4), x(3, 4), reduction=how, beta=0.7, **F)
    add("huber_loss", x(3, 4), x(3, 4), how, 0.7, **F)
    add(
        "binary_cross_entropy",
        pos(3, 4, low=0.1, high=0.9),
        pos(3, 4, low=0, high=1),
        reduction=how,
        **F,
    )
    add("binary_cross_entropy_with_logits", x(3, 4), pos(3, 4, low=0, high=1), reduction=how, **F)
    add("kl_div", x(3, 4), pos(3, 4, low=0.1, high=1), reduction=how, **F)
    add(
        "hinge_embedding_loss",
        x(3, 2),
        lit(1, -1, -1, 1, 1, -1, shape=(3, 2), dtype="int64"),
        reduction=how,
        **F,
    )
    add("soft_margin_loss", x(3), _SIGNS, reduction=how, **F)
    add("margin_ranking_loss", x(3), x(3), lit(1.0, -1.0, 1.0, grad=False), 0.3, reduction=how, **F)
    add(
        "cosine_embedding_loss",
        x(3, 4),
        x(3, 4),
        lit(1, -1, 1, dtype="int64"),
        0.1,
        reduction=how,
        **F,
    )
    add("multi_margin_loss", x(3, 4), _CLASSES, reduction=how, **F)
    add("multi_margin_loss", x(3, 4), _CLASSES, 2, 0.7, pos(4, grad=False), reduction=how, **F)
    add(
        "multilabel_margin_loss",
        x(2, 4),
        ids(3, 0, -1, 1, 2, -1, 0, 3, shape=(2, 4)),
        reduction=how,
        **F,
    )
    add(
        "multilabel_soft_margin_loss",
        x(3, 4),
        pos(3, 4, low=0, high=1, grad=False),
        reduction=how,
        **F,
    )
    add("poisson_nll_loss", x(3, 4), pos(3, 4, grad=False), reduction=how, **F)
    add("gaussian_nll_loss", x(3, 4), x(3, 4), pos(3, 4), reduction=how, **F)
    add("triplet_margin_loss", x(3, 4), x(3, 4), x(3, 4), reduction=how, **F)
    add("triplet_margin_with_distance_loss", x(3, 4), x(3, 4), x(3, 4), reduction=how, **F)
    add("cross_entropy", x(3, 4), _CLASSES, reduction=how, _dtypes=FLOATS, **F)
    add("nll_loss", x(3, 4), _CLASSES, reduction=how, _dtypes=WIDE, **F)
    add("cross_entropy", x(3, 4), pos(3, 4, low=0, high=1), reduction=how, **F)
    add("cross_entropy", x(3, 4), _CLASSES, pos(4, grad=False), None, 2, None, how, 0.2, **F)
    add("nll_loss", x(3, 4), _CLASSES, pos(4, grad=False), None, 2, None, how, **F)
add("kl_div", x(3, 4), x(3, 4), reduction="batchmean", log_target=True, **F)
add(
    "kl_div",
    x(3, 4),
    lit(0.0, 0.5, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.2, 0.3, 0.5, 0.0, shape=(3, 4), grad=False),
    **F,
)
add("cross_entropy nll_loss", x(2, 4, 3), ids(0, 2, 1, 3, 3, 0, shape=(2, 3)), **F)
add("cross_entropy nll_loss", x(4), ids(2, shape=()), **F)
add(
    "cross_entropy nll_loss",
    x(2, 4, 2, 2),
    ids(0, 2, 1, 3, 3, 0, 1, -100, shape=(2, 2, 2)),
    _differences=False,
    **F,
)
add(
    "cross_entropy", x(3, 4), pos(3, 4, low=0, high=1), pos(4, grad=False), label_smoothing=0.1, **F
)
add("mse_loss l1_loss", x(3, 4), x(3, 4), weight=pos(3, 4), **F)
add("huber_loss", x(3, 4), x(3, 4), weight=pos(3, 4), **F)
add("mse_loss", x(3, 4), x(4), **F)
add("mse_loss", x(0, 3), x(0, 3), reduction="sum", _grad=False, **F)
add("mse_loss", x(0, 3), x(0, 3), _grad=False, **F)
add("smooth_l1_loss", x(3, 4), x(3, 4), beta=0.0, _differences=False, **F)
add("mse_loss", x(3), x(3), False, **F)
add("mse_loss", x(3), x(3), None, False, **F)
add("binary_cross_entropy", lit(0.0, 1.0, 0.5), lit(1.0, 0.0, 0.5), _grad=False, **F)
add(
    "binary_cross_entropy",
    pos(3, 4, low=0.1, high=0.9),
    pos(3, 4, low=0, high=1),
    pos(4, grad=False),
    **F,
)
add(
    "binary_cross_entropy_with_logits",
    x(3, 4),
    pos(3, 4, low=0, high=1),
    pos(4, grad=False),
    pos_weight=pos(4, grad=False),
    **F,
)
add(
    "binary_cross_entropy_with_logits",
    lit(100.0, -100.0, 0.0),
    lit(0.0, 1.0, 0.5),
    _grad=False,
    **F,
)
add("multi_margin_loss", x(4), ids(2, shape=()), **F)
add("multilabel_margin_loss", x(4), ids(3, 0, -1, 1), **F)
add("poisson_nll_loss", pos(3, 4), pos(3, 4, high=5, grad=False), False, True, **F)
add("poisson_nll_loss", x(3, 4), pos(3, 4, high=5, grad=False), True, True, **F)
add("gaussian_nll_loss", x(3, 4), x(3, 4), pos(3), True, **F)
add("gaussian_nll_loss", x(3, 4), x(3, 4), pos(3, 1), **F)
add("triplet_margin_loss", x(3, 4), x(3, 4), x(3, 4), 0.5, 1, 1e-6, True, **F)
add("triplet_margin_with_distance_loss", x(3, 4), x(3, 4), x(3, 4), margin=0.5, swap=True, **F)
add("soft_margin_loss", x(3, 2), x(3, 2, grad=False), **F)

_LABELS = ids(1, 1, 2, 4, 3, 3, 2, 2, 1, shape=(3, 3))
_SCORES = x(6, 3, 5, low=-3, high=0)
for how in ("mean", "sum", "none"):
    add("ctc_loss", _SCORES, _LABELS, ids(6, 5, 6), ids(3, 2, 3), reduction=how, _grad=False, **F)
    add("ctc_loss", _SCORES, _LABELS, (6, 2, 0), (3, 3, 0), 4, how, _grad=False, **F)
    add("ctc_loss", _SCORES, _LABELS, (6, 2, 4), (3, 3, 2), 0, how, True, _grad=False, **F)
add("ctc_loss", _SCORES, ids(1, 2, 2, 3, 1), ids(6, 6, 3), ids(2, 0, 3), _grad=False, **F)
add("ctc_loss", x(6, 5), ids(1, 1, 2), ids(6, shape=()), ids(3, shape=()), _grad=False, **F)
add("ctc_loss", x(6, 5), ids(1, 1, 2), (6,), (3,), 0, "none", _grad=False, **F)
add("ctc_loss", _SCORES, pos(3, 3, low=1, high=4), (6, 6, 6), (3, 3, 3), _grad=False, **F)

# -- refused -----------------------------------------------------------------------------------

for name in (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "kl_div",
    "soft_margin_loss",
    "binary_cross_entropy_with_logits",
):
    bad(name, x(3), x(3), reduction="no", **F)
    bad(name, x(3), x(4), **F)
bad("cross_entropy nll_loss", x(3, 4), ids(0, 1), **F)
bad("cross_entropy nll_loss", x(3, 4), _CLASSES, reduction="no", **F)
bad("cross_entropy nll_loss", x(3, 4), _CLASSES, x(5), **F)
bad("binary_cross_entropy", pos(3, high=0.9), pos(4, high=0.9), **F)
bad("margin_ranking_loss", x(3), x(3, 4), x(3), **F)
bad("cosine_embedding_loss", x(3, 4), x(3, 4), x(3, 4), **F)
bad("multi_margin_loss", x(3, 4), _CLASSES, 3, **F)
bad("multi_margin_loss", x(3, 4), ids(0, 1), **F)
bad("multilabel_margin_loss", x(2, 4), ids(0, 1, 2, shape=(1, 3)), **F)
bad("gaussian_nll_loss", x(3, 4), x(3, 4), pos(2), **F)
bad("gaussian_nll_loss", x(3, 4), x(3, 4), -1.0, **F)
bad("triplet_margin_loss", x(3, 4), x(3, 4), x(4), **F)
bad("triplet_margin_loss", x(3, 4), x(3, 4), x(3, 4), -1.0, **F)
bad("triplet_margin_with_distance_loss", x(3, 4), x(3, 4), x(3, 4), margin=-1.0, **F)
bad("huber_loss", x(3), x(3), "mean", -1.0, **F)
bad("smooth_l1_loss", x(3), x(3), beta=-1.0, **F)
bad("poisson_nll_loss", x(3), x(3), reduction="no", **F)
bad("hinge_embedding_loss", x(3), x(4), **F)
bad("ctc_loss", _SCORES, _LABELS, (6, 6), (3, 3, 3), **F)
bad("ctc_loss", _SCORES, _LABELS, (7, 6, 6), (3, 3, 3), **F)
bad("ctc_loss", _SCORES, _LABELS, (6, 6, 6), (4, 3, 3), **F)
bad("ctc_loss", _SCORES, _LABELS, (6, 6, 6), (3, 3, 3), 5, **F)
bad("ctc_loss", _SCORES, _LABELS, (6, 6, 6), (3, 3, 3), reduction="no", **F)
bad("ctc_loss", _SCORES, ids(1, 2, 3, 4), (6, 6, 6), (3, 3, 3), **F)
bad("mse_loss", x(3), **F)
