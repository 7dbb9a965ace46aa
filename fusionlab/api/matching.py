"""Models in a canonical gauge, and in a common basis."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from fusionlab.api.given import Source, module_of, modules_of
from fusionlab.api.growing import of_one_size
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_alignments
from fusionlab.finite import refuse_not_finite
from fusionlab.inputs import Batches, Inputs
from fusionlab.matching.activations import match_activations
from fusionlab.matching.align import choose_anchor
from fusionlab.matching.align_models import activations_of, align_models
from fusionlab.matching.gauge import balance
from fusionlab.matching.options import BALANCED, GAUGES, given
from fusionlab.matching.presets import preset as preset_options
from fusionlab.matching.recipe import LEARNED, recipe
from fusionlab.matching.solvers import Rescale
from fusionlab.matching.weights import match_weights
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.models import common_blueprint
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.trainers import device_of, quiet_factory
from fusionlab.types import Model

# Batches for all models, or one iterable of them for each; inputs that are put together already.
Data = Batches | Sequence[Batches] | Inputs | None


def canonical(model: Model | Source, gauges: str | Sequence[str] = ("balanced",)) -> Model:
    """The same function in a canonical gauge.

    Args:
        model: of any architecture, or the path of a checkpoint; not modified.
        gauges: ``folded`` moves norm gains and layer scales into the maps beside them (pre-norm models), ``biases``
            clears key biases that softmax ignores and moves value biases into the output's, ``balanced`` balances query
            against key and value against output in every head.

    Raises:
        InputError: an unknown gauge.
        SymmetryError: an architecture that is not described.
    """
    module: Model = module_of(model, "model")
    gauges = given({"gauge": gauges})["gauge"]
    for gauge in gauges:
        if gauge not in GAUGES:
            raise InputError(f"gauge {gauge!r} does not exist; expected some of {', '.join(GAUGES)}")
    description = blueprint(module).in_gauge(gauges)
    folded = Alignment.identity(description).apply(module).eval()
    return balance(folded.state_dict(), description).apply(folded) if BALANCED in gauges else folded


def match(
    source: nn.Module | Source,
    anchor: nn.Module | Source,
    spaces: Sequence[str] | None = None,
    layers: str | Sequence[int] | None = None,
    rescale: Rescale | None = None,
    data: Batches | None = None,
    preset: str | None = None,
    seed: int = 0,
    **options: Any,
) -> Alignment:
    """The alignment that brings `source` closest to `anchor`, both in the gauge they come in.

    Args:
        source: the model to be matched, or the path of its checkpoint; not modified.
        anchor: the model to be matched to; not modified.
        spaces: roles such as ``attention``, ``attention.vo``, ``ffn``, ``heads``, ``residual``; attention and
            feed-forward if None, as in the paper's Algorithm 1.
        layers: indices, or the text of the ``layers`` option (``first:3``); all if None.
        rescale: ``off``, ``sequential`` (the default, Eq. 11 and 12 of the paper) or ``joint``; off with `data`.
        data: batches of inputs; labels are not looked at. Without a preset they bring activations together in place of
            weights; presets that look at inputs draw synthetic ones if None.
        preset: of matching, such as ``weights`` or ``learned`` (docs/matching.md lists them), with everything that it
            matches, and without the gauges that it has in `align`; ``paper`` if None.
        seed: of what ``learned`` draws, and of synthetic inputs.
        options: fields of the preset's options that override its own. With a ``gauge`` the alignment leads into the
            anchor's basis in that gauge, and not to the anchor as it is.

    Returns:
        An alignment; ``match(a, b).apply(a)`` is the matched twin.

    Raises:
        InputError: models that do not fit each other, options that do not exist, or a twin that would compute something
            else.
    """
    source, anchor = module_of(source, "source"), module_of(anchor, "anchor")
    named = {"source": source, "anchor": anchor}
    for name, model in named.items():
        refuse_not_finite(name, model)
    if preset is not None:
        chosen = {"spaces": spaces, "layers": layers, "rescale": rescale, "gauge": (), **options}
        return alignments_and_anchor([source, anchor], 1, preset, data, seed, **chosen)[0][0]
    if options:
        raise InputError(f"match has no option {next(iter(options))!r} without a preset; expected preset too")
    paper = preset_options("paper", spaces=spaces, layers=layers, rescale=rescale)
    shared = common_blueprint(named)
    if data is None:
        found = match_weights(source.state_dict(), anchor.state_dict(), shared, paper)
    else:
        if rescale not in (None, "off"):
            raise InputError(
                f"rescale is {rescale!r}, and activations are matched without; expected no rescale, or off"
            )
        batches = Inputs.from_batches(data, 2).shared
        moved, goal = (run(activations_of(model, batches)) for model in (source, anchor))
        found = match_activations(moved, goal, shared, paper)
    check_alignments([source], [found], seed)
    return found


def alignments(
    models: Sequence[nn.Module | Source],
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
        models: end models of one architecture, or paths of their checkpoints, in one list; not modified.
        anchor: index of the one whose basis is taken (0 if None), or ``nearest`` to the mean.
        preset: of matching, such as ``paper`` or ``learned`` (docs/matching.md lists them).
        data: inputs for presets that look at some, labels not needed: an iterable of batches for all models, or one for
            each; synthetic ones are drawn if None.
        seed: of what ``learned`` draws, and of synthetic inputs.
        trainer: arguments of Lightning's Trainer for ``activations`` and ``learned``, such as accelerator or precision;
            one quiet process in float32 if None. Its accelerator is where matching by weights is computed too; if
            None, that is where the models are.
        options: fields of `MatchOptions` that override the preset's: ``spaces``, ``layers``, ``rescale``, ``gauge``
            and so on.

    Raises:
        InputError: models that do not fit each other, options that do not exist, a precision that rounds models, or a
            twin that would compute something else.
    """
    ends: list[nn.Module] = modules_of(models, "alignments", anchor)
    return alignments_and_anchor(ends, anchor, preset, data, seed, trainer, **options)[0]


def align(
    models: Sequence[Model | Source],
    anchor: int | str | None = None,
    preset: str = "paper",
    data: Data = None,
    seed: int = 0,
    trainer: Mapping[str, Any] | None = None,
    like: Any = None,
    **options: Any,
) -> list[Model]:
    """Matched twins of all models, in order, in one common basis; each computes its own function, unchanged.

    The twins are what `alignments` turns the models into; arguments and errors are the same. Models of different sizes
    are grown to one first, the largest of all in every dimension (see `grow`), with a warning that says so; `like`, a
    model, the path of one, or a config, names a larger one that all are grown to.
    """
    ends: list[Model] = modules_of(models, "align", anchor)
    inputs = None if data is None else Inputs.from_batches(data, len(ends))
    ends = of_one_size(ends, inputs, recipe(preset, **options).matches, like)
    found, _ = alignments_and_anchor(ends, anchor, preset, inputs, seed, trainer, **options)
    return [alignment.apply(model) for alignment, model in zip(found, ends, strict=True)]


def alignments_and_anchor(
    models: Sequence[nn.Module],
    anchor: int | str | None,
    preset: str,
    data: Data,
    seed: int = 0,
    trainer: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[list[Alignment], int]:
    """An alignment for each model, and the index of the anchor; arguments and errors are those of `alignments`."""
    chosen = recipe(preset, **options, seed=seed if preset == LEARNED else None)
    factory = None if trainer is None else quiet_factory({"devices": 1, **trainer})
    named = {f"model {index}": model for index, model in enumerate(models)}
    shared = common_blueprint(named)
    chosen.refuse(shared)
    index = choose_anchor([model.state_dict() for model in models], anchor)
    inputs = None if data is None else Inputs.from_batches(data, len(models))
    if inputs is None and chosen.needs_inputs:
        inputs = Inputs.synthetic(models, seed=seed)
    place = HERE if trainer is None else Workplace(device_of(str(trainer.get("accelerator", "auto"))))
    found = run(align_models(models, shared, chosen, index, inputs, place=place), factory).alignments
    check_alignments(models, found, seed)
    return found, index
