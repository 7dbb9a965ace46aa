"""Models brought into one basis as a recipe says: run where it needs that, matched from every start, and learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import LABELS
from fusionlab.inputs import Batches, Inputs
from fusionlab.matching.align import gauged, in_one_basis
from fusionlab.matching.learned import refined
from fusionlab.matching.matchers.registry import Models, matcher_of
from fusionlab.matching.options import ACTIVATIONS, GRADIENTS, Selection
from fusionlab.matching.recipe import LEARNED, Recipe
from fusionlab.matching.tried_starts import best_start
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.stages import Stages
from fusionlab.statistics import Activations
from fusionlab.statistics.gather import gathered
from fusionlab.statistics.loading import part_of
from fusionlab.symmetry import Alignment, Blueprint

# Inputs that activations are compared on where nobody asked for that start, and numbers that are kept of each model
# (1 GiB in float32), which may be fewer rows of its maps than elsewhere.
LOOKED_AT, NUMBERS = 1024, 2**28


class Aligned(NamedTuple):
    """Models brought into one basis, and how.

    Attributes:
        alignments: one for each model, in order.
        recipe: that was followed: in place of a start that was left open, or of several, the one that was taken.
    """

    alignments: list[Alignment]
    recipe: Recipe


def align_models(
    models: Sequence[nn.Module],
    blueprint: Blueprint,
    chosen: Recipe,
    anchor: int = 0,
    inputs: Inputs | None = None,
    known: Sequence[Tensor] | None = None,
    name: str = "",
    place: Workplace = HERE,
) -> Stages[Aligned]:
    """An alignment for each model such that all matched twins share one basis, and the recipe that was followed.

    Args:
        models: end models, of `blueprint`; not modified.
        blueprint: of the models.
        chosen: how.
        anchor: index of the anchor.
        inputs: what the models are run on, labels not needed; required where the recipe needs inputs.
        known: for each model which labels it knows; None where all know all.
        name: of the matching, for progress bars and logs.
        place: where all but the passes over inputs is computed.

    Raises:
        InputError: inputs are needed and there are none, or labels of them, or several draws of them are tried and no
            start looks at any.
    """
    options = chosen.options
    if not options.spaces:
        return Aligned([Alignment.identity(blueprint) for _ in models], chosen)
    if chosen.needs_inputs and inputs is None:
        raise InputError("this matching has to run the models, and no inputs were given; expected data or probes")
    brought = [place.brought(model.state_dict()) for model in models]
    described, gauges = gauged(brought, blueprint, options, place.team)
    options.select(described)
    if chosen.refine is not None and chosen.refine.target == "labels":
        _refuse_without_labels(inputs)
    asked, chosen = chosen, chosen.suited_to(described, models, inputs)
    is_run = ACTIVATIONS in chosen.needs
    twins = [place.found(gauge).apply(model) for gauge, model in zip(gauges, models, strict=True)] if is_run else []
    states = [gauge.apply(state) for gauge, state in zip(gauges, brought, strict=True)]
    starts: dict[str, list[Alignment]] = {}
    named: dict[str, Selection] = {}
    for draw in range(chosen.draws):
        activations = (yield from _looked_at(twins, inputs, asked, chosen, draw)) if is_run else None
        for start, one in chosen.every_start.items():
            if draw and not matcher_of(one).needs(one):
                continue
            found = in_one_basis(Models(states, described, anchor, activations, place.team), gauges, one)
            name_of_it = f"{start}, draw {draw + 1}" if draw else start
            starts[name_of_it], named[name_of_it] = [place.found(alignment) for alignment in found], one
        del activations
    alignments = next(iter(starts.values()))
    del brought, states, twins  # a device is for learning now
    if chosen.refine is None:
        return Aligned(alignments, chosen)
    assert inputs is not None
    batches: Batches | list[Batches] = inputs.shared if inputs.is_shared else list(inputs.own)
    spaces, learning = options.select(described), inputs.suited(chosen.refine)
    label = "learned matching" if name in ("", LEARNED) else f"learned matching {name!r}"
    if len(starts) > 1:
        how: dict[str, Any] = {"anchor": anchor, "spaces": spaces, "known": known}
        best, alignments = yield from best_start(models, starts, batches, learning, label, **how)
        chosen = replace(chosen, options=named[best])
    refining = refined(models, described, alignments, batches, learning, anchor, spaces, known, label)
    return Aligned((yield from refining), chosen)


def _refuse_without_labels(inputs: Inputs | None) -> None:
    """Refuse inputs whose first batch has no labels, where labels are what is learned."""
    assert inputs is not None
    own = inputs.own[:1] if inputs.is_shared else inputs.own
    if any(LABELS not in next(iter(batches), {}) for batches in own):
        raise InputError("target is 'labels', but the data holds none; expected batches with labels")


def _looked_at(
    twins: Sequence[nn.Module], inputs: Inputs | None, asked: Recipe, chosen: Recipe, draw: int
) -> Stages[list[Activations]]:
    """Activations of each twin on a draw of the inputs: of all of them where the recipe that was asked for says so."""
    assert inputs is not None
    is_asked = ACTIVATIONS in asked.needs
    looked = inputs.shared if is_asked else part_of(inputs.shared, LOOKED_AT, draw)
    settings: dict[str, Any] = {"seed": draw} if is_asked else {"seed": draw, "numbers": NUMBERS}
    settings |= {"gradients": True} if GRADIENTS in chosen.needs else {}
    found = []
    for index, twin in enumerate(twins):
        label = f"gathering activations of model {index + 1}" + (f", draw {draw + 1}" if draw else "")
        found.append((yield from activations_of(twin, looked, label, **settings)))
    return found


def activations_of(model: nn.Module, batches: Batches, label: str = "", **settings: Any) -> Stages[Activations]:
    """Activations of a model's linear maps at a sample of rows of some inputs.

    Args:
        model: see `fusionlab.statistics.gather.gather`.
        batches: the same ones for all models whose activations are compared.
        label: see `Stage`.
        settings: of the kind, such as ``samples``.
    """
    found = (yield from gathered(model, batches, [Activations.kind], label=label, **settings))[Activations.kind]
    assert isinstance(found, Activations)
    return found
