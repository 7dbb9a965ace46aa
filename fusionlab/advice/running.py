"""The commands that advice names, the preset of matching in them, and the words for that of nets with BatchNorm."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from fusionlab.advice.pairs import Pair
from fusionlab.advice.situations import CASES, Case, CaseName
from fusionlab.advice.tensors import Weights

LEARNED, CORRELATION = "learned", "correlation"


def matching_of(found: Case, models: Sequence[Weights]) -> str | None:
    """The preset that is advised where inputs are at hand; nets with running statistics have one of their own.

    Args:
        found: the case that the models are.
        models: at least one.
    """
    return CORRELATION if found.match == LEARNED and has_statistics(models) else found.match


def by_correlation(case: Case) -> Case:
    """A case of nets with BatchNorm, whose channels no gradient moves: correlations of activations match them.

    Args:
        case: that they are otherwise.
    """
    measured = "Measure both: the merge as they are, and matched by the correlations of their activations."
    matched = (
        "Match them by the correlations of their activations on inputs without labels, with --correct, which gives "
        "each channel the mean and spread that the end models have; then take the plain mean. Narrow nets keep a "
        "barrier. Without inputs weights get part of the way."
    )
    return replace(case, helps=measured if case.is_open and case.unsure else matched)


def has_statistics(models: Sequence[Weights]) -> bool:
    """True for nets with BatchNorm.

    Args:
        models: at least one.
    """
    return any(name.endswith("running_mean") for name in models[0].tensors)


def has_other_heads(case: CaseName, pairs: Sequence[Pair]) -> bool:
    """True for models of one architecture and size in which a few parameters have other shapes: those of heads.

    Args:
        case: that they are.
        pairs: each with the first.
    """
    return CASES[case].match is not None and case != "sizes" and any(pair.shapes for pair in pairs)


def commands(
    case: CaseName, found: Case, models: Sequence[Weights], match: str | None, data: str, with_heads: bool
) -> list[str]:
    """Commands to run, the first with data, the second without; lines of Python where some models are modules.

    Args:
        case: that the models are.
        found: what is known of it.
        models: two or more.
        match: preset that is advised with data; None where nothing can be merged yet.
        data: as it is written.
        with_heads: whether the models keep heads of their own.
    """
    sources = [model.source for model in models if model.source is not None]
    if len(sources) < len(models):
        return _calls(found, match, with_heads)
    if case == "vocabularies":
        return [shlex.join(["fusionlab", "vocab", *sources, "--output", "one_vocabulary"])]
    if match is None:
        return []
    methods = ",".join(found.methods)
    with_data = ["fuse", "--ckpts", *sources, "--match", match, "--method", methods, "--data", data]
    with_data += ["--correct"] if match == CORRELATION else []
    alone = ["fuse", "--ckpts", *sources, "--match", str(found.match_alone), "--polish", "300"]
    if found.match_alone == "none":
        alone = ["merge", *sources, "--method", found.methods[-1]]
    if with_heads:
        # Heads of their own have no outputs in common to learn by, and data are each model's.
        match = _without_inputs(match)
        places = ["DATA_" + str(place) for place in range(1, len(sources) + 1)] if data == "DATA" else [data]
        with_data = ["fuse", "--ckpts", *sources, "--heads", "own", "--match", match, "--method", methods]
        with_data += ["--data", *places]
        alone = ["fuse", "--ckpts", *sources, "--heads", "own", "--match", str(found.match_alone), "--method", "simple"]
    if case == "adapters":
        base = ["--base", str(models[0].base)] if models[0].base else []
        with_data, alone = [*with_data, *base], ["merge", *sources, "--method", found.methods[-1], *base]
    return [shlex.join(["fusionlab", *words, "--output", "merged"]) for words in (with_data, alone)]


def _without_inputs(match: str) -> str:
    """A matching that looks at no inputs in place of one that does."""
    return "weights" if match in (LEARNED, CORRELATION) else match


def _calls(found: Case, match: str | None, with_heads: bool) -> list[str]:
    """The same as lines of Python."""
    if match is None:
        return []
    if with_heads:
        match = _without_inputs(match)
        return [f"fusionlab.FusionModule(models, {match!r}, {found.methods[-1]!r}, heads='own')"]
    method = f", method={found.methods[0]!r}" if found.methods[0] != "simple" else ""
    with_data = f"fusionlab.fuse(models, preset={match!r}{method}, data=batches)"
    return [with_data, f"fusionlab.fuse(models, preset={found.match_alone!r})"]
