"""Memory that a merge takes of models a part at a time, or whole, before any number or any statistics are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionlab.checkpoints.weightless import Weightless
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.method import MergeMethod
from fusionlab.statistics import Grams
from fusionlab.statistics.movement import MATRICES
from fusionlab.statistics.statistics import features_read
from fusionlab.streaming.memory import held
from fusionlab.symmetry.stacks import entries_of

if TYPE_CHECKING:
    from fusionlab.symmetry import Blueprint

# Matrices in float64 of all pairs of units that finding a map takes.
_PAIRS = 10


def memory_of_whole(sizes: Sequence[int], models: int, method: MergeMethod) -> int:
    """About how many bytes a merge of models in memory holds at least, beside torch itself.

    Args:
        sizes: bytes of each model, a base model behind them.
        models: how many are merged.
        method: that merges them.
    """
    fixed, each = method.holds if method.is_of_models and not callable(method.holds) else (1, 1)
    return max(sizes) * (fixed + (each - 1) * models) + sum(sizes)


def memory_by_parts(made: Weightless, blueprint: Blueprint, models: int, method: MergeMethod) -> int | None:
    """About how many bytes a merge of files holds at most, beside torch itself; None where it holds whole models.

    Args:
        made: the models' class without weights, as the files are known to be of it.
        blueprint: of them.
        models: how many.
        method: that merges them, by its defaults.
    """
    if not method.by_parts():
        return None
    state = made.model.state_dict()
    alone = max(held(tuple(tensor.shape), models, method) for tensor in state.values())
    if kinds := method.kinds():  # these say what depends on each other: a weight and its bias
        # Of twins that were matched, matrices of one input are moved as they are read, and one of each model is held.
        pairs = max(features_read(tensor.shape) for tensor in state.values()) ** 2
        return 4 * alone + (8 * (MATRICES + models) * pairs if Grams.kind in kinds else 0)
    if method.together is None:  # the maps in work are those of one space, and of what is written along it
        units = {name: space.count * space.group.size for name, space in blueprint.spaces.items()}
        counts = [
            sum(state[name].numel() for name in entries_of(blueprint.touching([space]), blueprint.stacks))
            for space in units
            if blueprint.spaces[space].layer is not None
        ]
        parts = [held((count,), models, method) for count in counts]
        return 4 * (max([alone, *parts]) + 2 * _PAIRS * max(units.values(), default=0) ** 2)
    given = Ingredients([], [1 / models] * models, blueprint, (), None, None, 0)
    given = method.surveyed(given, [state] * models)
    together = [sum(state[name].numel() for name in names) for names in method.together(given)]
    return 4 * max([alone, *(held((count,), models, method) for count in together)])
