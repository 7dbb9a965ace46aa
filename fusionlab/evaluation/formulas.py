"""Metrics as functions of sums over examples, for many resamples of the examples at once.

Each equals the torchmetrics metric that the same test set is scored by; what they take for granted (a class that is
nowhere, a model that answers everything alike) is decided alike.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mean(sums: Array) -> Array:
    """Sum over count; ``sums`` is (resamples, 2)."""
    return sums[:, 0] / sums[:, 1]


def perplexity(sums: Array) -> Array:
    """Exponential of the mean."""
    return np.exp(mean(sums))


def f1(sums: Array) -> Array:
    """F1 from what is right, predicted and true, ``sums`` (resamples, 3); 0 where there is nothing of either."""
    return 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)


def macro_f1(sums: Array) -> Array:
    """Mean F1 of the classes that are predicted or true anywhere; see `class_counts` for the columns."""
    hits, predicted, actual = np.split(sums, 3, axis=1)
    among = predicted + actual
    scores = 2 * hits / np.maximum(among, 1)
    return scores.sum(1) / np.maximum((among > 0).sum(1), 1)


def matthews(sums: Array) -> Array:
    """Matthews' correlation of predicted and true classes; 0 where either is always the same class.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """
    hits, predicted, actual = np.split(sums, 3, axis=1)
    total = actual.sum(1)
    covariance = hits.sum(1) * total - (predicted * actual).sum(1)
    spreads = (total**2 - (predicted**2).sum(1)) * (total**2 - (actual**2).sum(1))
    return np.where(spreads > 0, covariance / np.sqrt(np.where(spreads > 0, spreads, 1)), 0.0)


def multilabel_macro_f1(sums: Array) -> Array:
    """Mean F1 of the labels that are known anywhere; see `label_counts` for the columns."""
    hits, wrong, known = np.split(sums, 3, axis=1)
    scores = np.where(known > 0, 2 * hits / np.maximum(2 * hits + wrong, 1), 0.0)
    return scores.sum(1) / np.maximum((known > 0).sum(1), 1)


def multilabel_micro_f1(sums: Array) -> Array:
    """F1 over the known entries of all labels."""
    hits, wrong, _ = (part.sum(1) for part in np.split(sums, 3, axis=1))
    return 2 * hits / np.maximum(2 * hits + wrong, 1)


def pearson(weights: Array, predicted: Array, wanted: Array) -> Array:
    """Pearson's correlation of pairs, each counted as often as it was drawn; not a number where one side is constant.

    Args:
        weights: shape ``(resamples, examples)``.
        predicted: shape ``(examples,)``.
        wanted: of the same shape.
    """
    # Centred first, so that squares of large numbers do not cancel.
    x, y = predicted - predicted.mean(), wanted - wanted.mean()
    count, sx, sy, sxx, syy, sxy = (weights @ np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1)).T
    return _correlation(sxx - sx**2 / count, syy - sy**2 / count, sxy - sx * sy / count, sxx, syy)


def spearman(weights: Array, predicted: Array, wanted: Array) -> Array:
    """Spearman's correlation: Pearson's of the ranks within each resample; 0 where one side is constant."""
    x, y = ranks(weights, predicted), ranks(weights, wanted)
    count = weights.sum(1, keepdims=True)
    # Ranks with ties at their means always have this mean.
    x, y = x - (count + 1) / 2, y - (count + 1) / 2
    vx, vy, cov = ((weights * product).sum(1) for product in (x * x, y * y, x * y))
    return np.nan_to_num(_correlation(vx, vy, cov, vx, vy), nan=0.0)


def ranks(weights: Array, values: Array) -> Array:
    """The rank of every value within each resample, from 1; equal values share the mean of theirs.

    Args:
        weights: how often each example is in each resample, shape ``(resamples, examples)``.
        values: shape ``(examples,)``.

    Returns:
        Shape ``(resamples, examples)``; of no meaning where an example was not drawn.
    """
    _, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    ties = np.add.reduceat(weights[:, order], starts, axis=1)
    below = np.cumsum(ties, axis=1) - ties
    return (below + (ties + 1) / 2)[:, place]


def _correlation(vx: Array, vy: Array, cov: Array, scale_x: Array, scale_y: Array) -> Array:
    """Covariance over both deviations; not a number where a variance is rounding of what it is the difference of."""
    tiny = 1e-12
    known = (vx > tiny * scale_x) & (vy > tiny * scale_y)
    spread = np.sqrt(np.where(known, vx * vy, 1.0))
    return np.where(known, np.clip(cov / spread, -1, 1), np.nan)


FROM_SUMS: Mapping[str, Callable[[Array], Array]] = {
    "mean": mean,
    "perplexity": perplexity,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "multilabel_macro_f1": multilabel_macro_f1,
    "multilabel_micro_f1": multilabel_micro_f1,
}
FROM_PAIRS: Mapping[str, Callable[[Array, Array, Array], Array]] = {"pearson": pearson, "spearman": spearman}
