"""Recipes: how models are brought into one basis, by weights, by activations, by learning, as one documented choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.inputs import Batches, Inputs
from fusionlab.matching.activations import activations_then_weights
from fusionlab.matching.align import align_states, beside_anchor, gauged
from fusionlab.matching.learned import refined
from fusionlab.matching.options import ALL, PRESETS, MatchOptions, describe, given
from fusionlab.matching.permutations import Objective, match_permutations
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import Stages
from fusionlab.statistics import Activations
from fusionlab.statistics.gather import gathered
from fusionlab.symmetry import Alignment, Blueprint

ACTIVATIONS, LEARNED, GIT_REBASIN, OT_FUSION = "activations", "learned", "git-rebasin", "ot-fusion"


@dataclass(frozen=True)
class Recipe:
    """How models are matched.

    Attributes:
        weights: which spaces are matched, and how by weights.
        permutations: in place of rotations, permutations of all spaces that go by this objective: ``inner`` (Git
            Re-Basin) or a ground metric (hard OT fusion); None for the groups' own elements.
        activations: whether matching by weights starts from what brings activations together.
        refine: how the alignment is then learned, or None for not at all.
    """

    weights: MatchOptions
    permutations: Objective | None = None
    activations: bool = False
    refine: RefineOptions | None = None

    @property
    def gauge(self) -> tuple[str, ...]:
        """The gauge that every model is brought into before anything is matched; empty where nothing is."""
        return self.weights.gauge if self.weights.spaces else ()

    @property
    def needs_inputs(self) -> bool:
        """Whether the models have to be run."""
        return self.activations or self.refine is not None

    def __str__(self) -> str:
        """In words, for a report."""
        parts = [describe(self.weights)]
        if self.permutations is not None:
            parts.append(f"permutations only, by {self.permutations} of units")
        if self.activations:
            parts.append("started from activations")
        if self.refine is not None:
            taught = "the end models' mean output" if self.refine.target == "outputs" else "labels"
            parts.append(f"refined in {self.refine.steps} steps towards {taught}")
        return "; ".join(parts)


RECIPES: dict[str, Recipe] = {
    **{name: Recipe(options) for name, options in PRESETS.items()},
    ACTIVATIONS: Recipe(PRESETS["weights"], activations=True),
    LEARNED: Recipe(PRESETS["weights"], refine=RefineOptions()),
    GIT_REBASIN: Recipe(MatchOptions(spaces=(ALL,), rescale="off"), permutations="inner"),
    OT_FUSION: Recipe(MatchOptions(spaces=("ffn",), rescale="off"), permutations="euclidean"),
}


def recipe(name: str, **changes: Any) -> Recipe:
    """A documented recipe, some of its options changed.

    Args:
        name: ``none``, ``paper`` and ``weights`` as in `fusionlab.matching.options.preset`; ``activations`` (as
            ``weights``, started from activations); ``learned`` (as ``weights``, then refined by gradient descent inside
            the group); two to compare with, ``git-rebasin`` (Ainsworth et al., 2023: permutations of all spaces) and
            ``ot-fusion`` (Singh and Jaggi, 2020: exact transport of feed-forward units, as in the paper's Figure 4).
        changes: fields of `MatchOptions` in any way that `given` knows, and for ``learned`` of `RefineOptions`; None
            keeps the recipe's value.

    Raises:
        InputError: a name, a field or a value that does not exist.
    """
    if name not in RECIPES:
        raise InputError(f"matching preset {name!r} does not exist; expected one of {', '.join(RECIPES)}")
    chosen, known = RECIPES[name], given(changes)
    matching = {field.name for field in fields(MatchOptions)} - _without_effect(chosen)
    refining = {field.name for field in fields(RefineOptions)} if chosen.refine is not None else set()
    for field in known:
        if field not in matching | refining:
            hint = " (an option of learned)" if field in {f.name for f in fields(RefineOptions)} else ""
            expected = ", ".join(sorted(matching | refining))
            raise InputError(f"matching by {name} has no option {field!r}{hint}; expected some of {expected}")
    weights = replace(chosen.weights, **{field: value for field, value in known.items() if field in matching})
    if chosen.refine is None:
        return replace(chosen, weights=weights)
    refined = replace(chosen.refine, **{field: value for field, value in known.items() if field in refining})
    return replace(chosen, weights=weights, refine=refined)


def _without_effect(chosen: Recipe) -> frozenset[str]:
    """Options of matching by weights that mean nothing where something else is done."""
    if chosen.permutations is not None:
        return frozenset({"towards", "relative", "start", "rescale", "temperatures"})
    return frozenset({"towards"} if chosen.activations else ())


def align_models(
    models: Sequence[nn.Module],
    blueprint: Blueprint,
    chosen: Recipe,
    anchor: int = 0,
    inputs: Inputs | None = None,
    known: Sequence[Tensor] | None = None,
    name: str = "",
) -> Stages[list[Alignment]]:
    """An alignment for each model, in order, such that all matched twins share one basis.

    Args:
        models: end models, of `blueprint`; not modified.
        blueprint: of the models.
        chosen: how.
        anchor: index of the anchor.
        inputs: what the models are run on, labels not needed; required where the recipe needs inputs.
        known: for each model which labels it knows; None where all know all.
        name: of the matching, for progress bars and logs.

    Raises:
        InputError: inputs are needed and there are none.
    """
    states = [model.state_dict() for model in models]
    if not chosen.weights.spaces:
        return [Alignment.identity(blueprint) for _ in models]
    if chosen.permutations is not None:
        return _by_permutations(states, blueprint, chosen.weights, anchor, chosen.permutations)
    if not chosen.needs_inputs:
        return align_states(states, blueprint, chosen.weights, anchor)
    if inputs is None:
        raise InputError("this matching runs the models, and there is nothing to run them on; expected data or probes")
    chosen.weights.select(blueprint)
    if chosen.activations:
        alignments = yield from _from_activations(models, blueprint, chosen.weights, anchor, inputs)
    else:
        alignments = align_states(states, blueprint, chosen.weights, anchor)
    if chosen.refine is None:
        return alignments
    described = alignments[0].blueprint
    batches: Batches | list[Batches] = inputs.shared if inputs.is_shared else list(inputs.own)
    spaces = chosen.weights.select(described)
    label = "learned matching" if name in ("", LEARNED) else f"learned matching {name!r}"
    refining = refined(models, described, alignments, batches, chosen.refine, anchor, spaces, known, label)
    return (yield from refining)


def _by_permutations(
    states: Sequence[Mapping[str, Tensor]], blueprint: Blueprint, options: MatchOptions, anchor: int, by: Objective
) -> list[Alignment]:
    described, gauges = gauged(states, blueprint, options)
    twins = [gauge.apply(state) for gauge, state in zip(gauges, states, strict=True)]
    return beside_anchor(
        gauges, anchor, lambda index: match_permutations(twins[index], twins[anchor], described, options, by)
    )


def _from_activations(
    models: Sequence[nn.Module],
    blueprint: Blueprint,
    options: MatchOptions,
    anchor: int,
    inputs: Inputs,
) -> Stages[list[Alignment]]:
    described, gauges = gauged([model.state_dict() for model in models], blueprint, options)
    twins = [gauge.apply(model) for gauge, model in zip(gauges, models, strict=True)]
    seen = []
    for index, twin in enumerate(twins):
        seen.append((yield from activations_of(twin, inputs.shared, f"gathering activations of model {index + 1}")))
    pairs = [(twin.state_dict(), activations) for twin, activations in zip(twins, seen, strict=True)]
    return beside_anchor(
        gauges, anchor, lambda index: activations_then_weights(pairs[index], pairs[anchor], described, options)
    )


def activations_of(model: nn.Module, batches: Batches, label: str = "") -> Stages[Activations]:
    """Activations of a model's linear maps at a sample of rows of some inputs.

    Args:
        model: see `fusionlab.statistics.gather.gather`.
        batches: the same ones for all models whose activations are compared.
        label: see `Stage`.
    """
    found = (yield from gathered(model, batches, [Activations.kind], label=label))[Activations.kind]
    assert isinstance(found, Activations)
    return found
