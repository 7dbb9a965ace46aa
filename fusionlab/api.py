"""The Python calls: modules go in, new modules of the same class come out, inputs are never modified."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.dtypes import find_dtype, in_types, widened
from fusionlab.errors import InputError
from fusionlab.evaluation.line import move_along_line, refuse_points
from fusionlab.evaluation.results import UNMATCHED, Curve
from fusionlab.evaluation.task_scores import make_scores, score_of
from fusionlab.fusion.fuser import STATISTICS
from fusionlab.inputs import Batches, Inputs
from fusionlab.matching.activations import match_activations
from fusionlab.matching.align import choose_anchor
from fusionlab.matching.gauge import balance
from fusionlab.matching.options import BALANCED, GAUGES
from fusionlab.matching.presets import preset as preset_options
from fusionlab.matching.recipe import LEARNED, activations_of, align_models, recipe
from fusionlab.matching.solvers import Rescale
from fusionlab.matching.weights import match_weights
from fusionlab.merging import find_method, merge_states
from fusionlab.models import common_blueprint, with_state
from fusionlab.stages import run
from fusionlab.statistics import Statistics
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.trainers import quiet_factory
from fusionlab.types import Model

# Batches for all models, or one iterable of them for each; inputs that are put together already.
Data = Batches | Sequence[Batches] | Inputs | None


def canonical(model: Model, gauges: Sequence[str] = ("balanced",)) -> Model:
    """The same function in a canonical gauge.

    Args:
        model: of a supported architecture; not modified.
        gauges: ``folded`` moves norm gains and layer scales into the maps beside them (pre-norm models), ``biases``
            clears key biases that softmax ignores and moves value biases into the output's, ``balanced`` balances query
            against key and value against output in every head.

    Raises:
        InputError: an unknown gauge.
        SymmetryError: an architecture that is not described.
    """
    for gauge in gauges:
        if gauge not in GAUGES:
            raise InputError(f"gauge {gauge!r} does not exist; expected some of {', '.join(GAUGES)}")
    description = blueprint(model).in_gauge(gauges)
    folded = Alignment.identity(description).apply(model).eval()
    return balance(folded.state_dict(), description).apply(folded) if BALANCED in gauges else folded


def match(
    source: nn.Module,
    anchor: nn.Module,
    spaces: Sequence[str] | None = None,
    layers: str | Sequence[int] | None = None,
    rescale: Rescale | None = None,
    data: Batches | None = None,
) -> Alignment:
    """The alignment that brings `source` closest to `anchor`, both in the gauge they come in.

    Args:
        source: the model to be matched; not modified.
        anchor: the model to be matched to; not modified.
        spaces: roles such as ``attention``, ``attention.vo``, ``ffn``, ``heads``, ``residual``; attention and
            feed-forward if None, as in the paper's Algorithm 1.
        layers: indices, or the text of the ``layers`` option (``first:3``); all if None.
        rescale: ``off``, ``sequential`` (the default, Eq. 11 and 12 of the paper) or ``joint``.
        data: batches of inputs, to bring activations together in place of weights; labels are not looked at.

    Returns:
        An alignment; ``match(a, b).apply(a)`` is the matched twin.

    Raises:
        InputError: models that do not fit each other, or options that do not exist.
    """
    options = preset_options("paper", spaces=spaces, layers=layers, rescale=rescale)
    shared = common_blueprint({"source": source, "anchor": anchor})
    if data is None:
        return match_weights(source.state_dict(), anchor.state_dict(), shared, options)
    batches = Inputs.from_batches(data, 2).shared
    moved, goal = (run(activations_of(model, batches)) for model in (source, anchor))
    return match_activations(moved, goal, shared, options)


def alignments(
    models: Sequence[nn.Module],
    anchor: int | str | None = None,
    preset: str = "paper",
    data: Data = None,
    seed: int = 0,
    trainer: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Alignment]:
    """Alignments of all models, in order; what each turns its model into shares one basis.

    The basis is the anchor's: its alignment is the identity where the preset has no gauge, and else brings the anchor
    into the gauge. It brings a base model that all were fine-tuned from into the twins' basis too, which methods with
    task vectors need: ``found = alignments([a, b]); merge([found[0].apply(a), found[1].apply(b)], "ties",
    base=found[0].apply(base))``. `fuse` does so by itself.

    Args:
        models: end models of one architecture; not modified.
        anchor: index of the one whose basis is taken (0 if None), or ``nearest`` to the mean.
        preset: ``none``, ``paper``, ``weights``, ``activations``, ``learned``, ``git-rebasin`` or ``ot-fusion``.
        data: inputs for ``activations`` and ``learned``, labels not needed: an iterable of batches for all models, or
            one for each; synthetic ones are drawn if None.
        seed: of what ``learned`` draws, and of synthetic inputs.
        trainer: arguments of Lightning's Trainer for ``activations`` and ``learned``, such as accelerator or precision;
            one quiet process in float32 if None.
        options: fields of `MatchOptions` that override the preset's: ``spaces``, ``layers``, ``rescale``, ``gauge``
            and so on.

    Raises:
        InputError: models that do not fit each other, options that do not exist, or a precision that rounds models.
    """
    return _alignments(models, anchor, preset, data, seed, trainer, **options)[0]


def align(
    models: Sequence[Model],
    anchor: int | str | None = None,
    preset: str = "paper",
    data: Data = None,
    seed: int = 0,
    trainer: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Model]:
    """Matched twins of all models, in order, in one common basis; each computes its own function, unchanged.

    The twins are what `alignments` turns the models into; arguments and errors are the same.
    """
    found, _ = _alignments(models, anchor, preset, data, seed, trainer, **options)
    return [alignment.apply(model) for alignment, model in zip(found, models, strict=True)]


def _alignments(
    models: Sequence[nn.Module],
    anchor: int | str | None,
    preset: str,
    data: Data,
    seed: int = 0,
    trainer: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[list[Alignment], int]:
    """An alignment for each model, and the index of the anchor."""
    chosen = recipe(preset, **options, seed=seed if preset == LEARNED else None)
    factory = None if trainer is None else quiet_factory({"devices": 1, **trainer})
    shared = common_blueprint({f"model {index}": model for index, model in enumerate(models)})
    index = choose_anchor([model.state_dict() for model in models], anchor)
    inputs = None if data is None else Inputs.from_batches(data, len(models))
    if inputs is None and chosen.needs_inputs:
        inputs = Inputs.synthetic(models, seed=seed)
    return run(align_models(models, shared, chosen, index, inputs), factory), index


def merge(
    models: Sequence[Model],
    method: str = "simple",
    weights: Sequence[float] | None = None,
    data: Data | Sequence[Mapping[str, Statistics]] = None,
    base: nn.Module | None = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    **hyperparameters: Any,
) -> Model:
    """One model from several that share a basis (fine-tunes of one base, or matched twins).

    Args:
        models: end models of one class; not modified.
        method: merge method.
        weights: one for each model, scaled to sum to 1; equal if None.
        data: for methods that look at data: an iterable of batches for all models, one for each, or the statistics of
            each model by kind, as `gather` and `load_statistics` give them.
        base: the model that all were fine-tuned from, for methods that need it; in the models' basis (see `alignments`
            where they are matched twins).
        seed: of anything random.
        dtype: of the merge, such as ``bfloat16``; that of the models, or the widest where theirs differ, if None.
        hyperparameters: the method's own.

    Raises:
        InputError: an unknown method or hyperparameter, models that do not fit each other, or something that the
            method needs is missing.
    """
    if any(type(model) is not type(models[0]) for model in models):
        raise InputError(f"merge was given models of classes {_classes(models)}; expected one class")
    chosen, stored = find_dtype(dtype), list(models)
    models = list(widened(dict(enumerate(stored)), chosen).values())
    needs = find_method(method).requires(**hyperparameters)
    description = blueprint(models[0]) if needs else None
    kinds = [need for need in needs if need in STATISTICS]
    statistics: Sequence[Mapping[str, Statistics]] = ()
    if kinds and data is not None:
        assert description is not None
        given = _statistics(data)
        inputs = None if given else Inputs.from_batches(data, len(models))
        store = StatisticsStore(inputs, given, settings={"seed": seed, **hyperparameters})
        for before, model in zip(stored, models, strict=True):
            if before is not model:
                store.also_of(before.state_dict(), model.state_dict())
        statistics = [run(store.of(index, model, kinds)) for index, model in enumerate(models)]
    score = None
    if "score" in needs and data is not None:
        held_out = [Inputs.from_batches(data, len(models)).shared]

        def score(state: Mapping[str, Tensor]) -> float:
            return score_of(with_state(models[0], state), held_out)

    state = merge_states(
        [model.state_dict() for model in models],
        method,
        weights,
        blueprint=description,
        statistics=statistics,
        base=None if base is None else base.state_dict(),
        score=score,
        seed=seed,
        **hyperparameters,
    )
    merged = with_state(models[0], state)
    return merged if chosen is None else in_types(merged, chosen)


def fuse(
    models: Sequence[Model],
    preset: str = "paper",
    method: str = "simple",
    anchor: int | str | None = None,
    weights: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    data: Data = None,
    base: nn.Module | None = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    **hyperparameters: Any,
) -> Model:
    """One model from several: match, then merge.

    Args:
        models: end models of one architecture; not modified.
        preset: how to match, see `align`.
        method: how to merge, see `merge`.
        anchor: see `align`.
        weights: see `merge`.
        options: of the matching, and its ``trainer``, see `align`.
        data: for both, see `align` and `merge`.
        base: the model that all were fine-tuned from, for methods that need it; it is brought into the twins' basis.
        seed: of anything random.
        dtype: see `merge`.
        hyperparameters: of the merge method.

    Raises:
        InputError: see `align` and `merge`; or a base that does not fit the models.
    """
    if base is not None:
        common_blueprint({"model 0": models[0], "the base model": base})
    # In the merge's type from the start, so that matching rounds nothing that the merge would keep.
    models = list(widened(dict(enumerate(models)), find_dtype(dtype)).values())
    found, index = _alignments(models, anchor, preset, data, **{"seed": seed, **(options or {})})
    twins = [alignment.apply(model) for alignment, model in zip(found, models, strict=True)]
    moved = None if base is None else found[index].apply(base)
    return merge(twins, method, weights, data, moved, seed, dtype, **hyperparameters)


@torch.no_grad()
def barrier(a: nn.Module, b: nn.Module, data: Batches, points: int = 11) -> Curve:
    """Loss and main metric on the straight line from `a` to `b`; ``.barrier`` is how far the loss rises above its ends.

    Args:
        a: the model at position 0, on the device to use; not modified.
        b: the model at position 1, of the same class.
        data: batches with ``labels``; gone through once for each point, so no one-way iterator.
        points: evenly spaced positions, both ends included; at least 2.

    Raises:
        InputError: too few points or too many, no data, or models that do not fit each other.
    """
    refuse_points(points, may_be_none=False)
    if iter(data) is data:
        raise InputError("data can be gone through only once; expected a list or a DataLoader")
    if next(iter(data), None) is None:
        raise InputError("data holds no batch; expected at least one")
    common_blueprint({"a": a, "b": b})
    positions = [index / (points - 1) for index in range(points)]
    model, found = with_state(a, a.state_dict()), []
    for position in positions:
        move_along_line(model, a, b, position)
        scores = make_scores(a).to(next(model.parameters()).device)
        for batch in data:
            scores.update(model, batch)
        found.append(scores.compute())
    loss, score = (tuple(values[metric] for values in found) for metric in ("loss", scores.main))
    return Curve("b", "a", UNMATCHED, "data", None, tuple(positions), loss, score, scores.main)


def _statistics(data: Any) -> Sequence[Mapping[str, Statistics]]:
    """The given statistics, one mapping by kind for each model; nothing where data was given in their place."""
    if not isinstance(data, Sequence) or not data or not isinstance(data[0], Mapping):
        return ()
    return data if all(isinstance(value, Statistics) for found in data for value in found.values()) else ()


def _classes(models: Sequence[nn.Module]) -> str:
    return " and ".join(dict.fromkeys(type(model).__name__ for model in models))
