"""The Python calls: modules go in, new modules of the same class come out, inputs are never modified."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.line import move_along_line
from fusionlab.evaluation.results import UNMATCHED, Curve
from fusionlab.evaluation.scores import Scores
from fusionlab.matching.align import align_states, choose_anchor
from fusionlab.matching.options import BALANCED, FOLDED, GAUGES, MatchOptions, listed
from fusionlab.matching.options import preset as preset_options
from fusionlab.matching.solvers import Rescale
from fusionlab.matching.weights import match_weights
from fusionlab.merging import merge_states
from fusionlab.models import common_blueprint, with_state
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.gauge import balance

Model = TypeVar("Model", bound=nn.Module)
Batches = Iterable[Mapping[str, Tensor]]


def canonical(model: Model, gauges: Sequence[str] = ("balanced",)) -> Model:
    """The same function in a canonical gauge.

    Args:
        model: of a supported architecture; not modified.
        gauges: ``folded`` moves norm gains and layer scales into the maps beside them (pre-norm models), ``balanced``
            balances query against key and value against output in every head.

    Raises:
        InputError: an unknown gauge.
        SymmetryError: an architecture that is not described.
    """
    for gauge in gauges:
        if gauge not in GAUGES:
            raise InputError(f"gauge {gauge!r} does not exist; expected some of {', '.join(GAUGES)}")
    description = blueprint(model)
    if FOLDED in gauges and description.after_folding is not None:
        description = description.after_folding
    folded = Alignment.identity(description).apply(model).eval()
    return balance(folded.state_dict(), description).apply(folded) if BALANCED in gauges else folded


def match(
    source: nn.Module,
    anchor: nn.Module,
    spaces: Sequence[str] | None = None,
    layers: str | Sequence[int] | None = None,
    rescale: Rescale | None = None,
    data: None = None,
) -> Alignment:
    """The alignment that brings `source` closest to `anchor` in weight space, both in the gauge they come in.

    Args:
        source: the model to be matched; not modified.
        anchor: the model to be matched to; not modified.
        spaces: roles such as ``attention``, ``attention.vo``, ``ffn``, ``heads``, ``residual``; attention and
            feed-forward if None, as in the paper's Algorithm 1.
        layers: indices, or the text of the ``layers`` option (``first:3``); all if None.
        rescale: ``off``, ``sequential`` (the default, Eq. 11 and 12 of the paper) or ``joint``.
        data: matching by data is not part of this version.

    Returns:
        An alignment; ``match(a, b).apply(a)`` is the matched twin.

    Raises:
        InputError: models that do not fit each other, or options that do not exist.
    """
    if data is not None:
        raise InputError("match was given data, but matching from data does not exist in this version; expected none")
    options = preset_options("paper", spaces=listed(spaces), layers=_layers(layers), rescale=rescale)
    shared = common_blueprint({"source": source, "anchor": anchor})
    return match_weights(source.state_dict(), anchor.state_dict(), shared, options)


def align(
    models: Sequence[Model],
    anchor: int | str | None = None,
    preset: str = "paper",
    data: None = None,
    **options: Any,
) -> list[Model]:
    """Matched twins of all models, in order, in one common basis; each computes its own function, unchanged.

    Args:
        models: end models of one architecture; not modified.
        anchor: index of the one whose basis is taken (0 if None), or ``nearest`` to the mean.
        preset: ``none``, ``paper`` or ``weights``.
        data: matching by data is not part of this version.
        options: fields of `MatchOptions` that override the preset's: ``spaces``, ``layers``, ``rescale``, ``gauge``,
            ``sweeps``.

    Raises:
        InputError: models that do not fit each other, or options that do not exist.
    """
    if data is not None:
        raise InputError("align was given data, but matching from data does not exist in this version; expected none")
    alignments = _align(models, anchor, preset, options)
    return [alignment.apply(model) for alignment, model in zip(alignments, models, strict=True)]


def merge(
    models: Sequence[Model],
    method: str = "simple",
    weights: Sequence[float] | None = None,
    data: None = None,
    **hyperparameters: Any,
) -> Model:
    """One model from several that share a basis (fine-tunes of one base, or matched twins).

    Args:
        models: end models of one class; not modified.
        method: merge method.
        weights: one for each model, scaled to sum to 1; equal if None.
        data: merging by data is not part of this version.
        hyperparameters: the method's own.

    Raises:
        InputError: an unknown method or hyperparameter, or models that do not fit each other.
    """
    if data is not None:
        raise InputError("merge was given data, but no merge method of this version uses any; expected none")
    if any(type(model) is not type(models[0]) for model in models):
        raise InputError(f"merge was given models of classes {_classes(models)}; expected one class")
    state = merge_states([model.state_dict() for model in models], method, weights, **hyperparameters)
    return with_state(models[0], state)


def fuse(
    models: Sequence[Model],
    preset: str = "paper",
    method: str = "simple",
    anchor: int | str | None = None,
    weights: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    **hyperparameters: Any,
) -> Model:
    """Match, then merge: ``merge(align(models))``.

    Args:
        models: end models of one architecture; not modified.
        preset: how to match, see `align`.
        method: how to merge, see `merge`.
        anchor: see `align`.
        weights: see `merge`.
        options: of the matching, see `align`.
        hyperparameters: of the merge method.
    """
    return merge(align(models, anchor, preset, **(options or {})), method, weights, **hyperparameters)


@torch.no_grad()
def barrier(a: nn.Module, b: nn.Module, data: Batches, points: int = 11) -> Curve:
    """Loss and accuracy on the straight line from `a` to `b`; ``.barrier`` is how far the loss rises above its ends.

    Args:
        a: the model at position 0, on the device to use; not modified.
        b: the model at position 1, of the same class.
        data: batches with ``labels``; gone through once for each point, so no one-way iterator.
        points: evenly spaced positions, both ends included; at least 2.

    Raises:
        InputError: too few points, no data, or models that do not fit each other.
    """
    if points < 2:
        raise InputError(f"points is {points}; expected at least 2")
    if iter(data) is data:
        raise InputError("data can be gone through only once; expected a list or a DataLoader")
    if next(iter(data), None) is None:
        raise InputError("data holds no batch; expected at least one")
    common_blueprint({"a": a, "b": b})
    positions = [index / (points - 1) for index in range(points)]
    model, found = with_state(a, a.state_dict()), []
    for position in positions:
        move_along_line(model, a, b, position)
        scores = Scores().to(next(model.parameters()).device)
        for batch in data:
            scores.update(model, batch)
        found.append(scores.compute())
    loss, accuracy = (tuple(score[metric] for score in found) for metric in ("loss", "accuracy"))
    return Curve("b", "a", UNMATCHED, "data", None, tuple(positions), loss, accuracy)


def _align(
    models: Sequence[nn.Module], anchor: int | str | None, preset: str, options: Mapping[str, Any]
) -> list[Alignment]:
    fields = set(MatchOptions.__dataclass_fields__)
    if unknown := sorted(set(options) - fields):
        raise InputError(f"matching has no option {unknown[0]!r}; expected some of {', '.join(sorted(fields))}")
    changes = dict(options)
    changes["spaces"] = listed(changes.get("spaces"))
    changes["gauge"] = listed(changes.get("gauge"))
    changes["layers"] = _layers(changes.get("layers"))
    chosen = preset_options(preset, **changes)
    shared = common_blueprint({f"model {index}": model for index, model in enumerate(models)})
    states = [model.state_dict() for model in models]
    return align_states(states, shared, chosen, choose_anchor(states, anchor))


def _layers(layers: str | Sequence[int] | int | None) -> str | None:
    if isinstance(layers, int):
        return str(layers)
    return layers if layers is None or isinstance(layers, str) else ",".join(map(str, layers))


def _classes(models: Sequence[nn.Module]) -> str:
    return " and ".join(dict.fromkeys(type(model).__name__ for model in models))
