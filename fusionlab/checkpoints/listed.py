"""Changes of experts that an adapter names one by one, as changes of the tensor in which the class has them all.

Files of mixtures have a tensor for each expert's layer, and so had the classes of transformers 4, whose adapters have a
pair of factors for each. The classes of transformers 5 have one tensor for all experts, of several layers at times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.checkpoints.conversions import Group
from fusionlab.checkpoints.weightless import as_written

WEIGHT = ".weight"


@dataclass(frozen=True)
class Place:
    """The place of one matrix of a file in a parameter ``(experts, rows, columns)``.

    Attributes:
        expert: that it belongs to.
        rows: of that expert's matrix that its own are, ``(out,)``.
    """

    expert: int
    rows: Tensor


def places(group: Group, shape: tuple[int, ...]) -> dict[str, Place] | None:
    """The place of every tensor of a group in the one parameter that they become, by their names in the files.

    Args:
        group: of tensors.
        shape: of the parameter, ``(experts, rows, columns)``.

    Returns:
        None where rows do not stay rows, or it is not known where they go.
    """
    if len(group.made) != 1 or len(shape) != 3:
        return None
    experts, height = shape[0], shape[1]
    # Numbers of rows go the way of the rows. Two columns of them: transformers 5.17 drops a single one.
    rows_of_all = torch.arange(experts * height).reshape(experts, height, 1).expand(-1, -1, 2)
    try:
        numbers = group.written({group.made[0]: rows_of_all})
    except Exception:  # of operations of transformers that want whole rows
        return None
    found = {}
    for name, rows in numbers.items():
        if rows.ndim != 2 or rows.shape[1] != 2:
            return None
        expert = int(rows[0, 0]) // height
        own = rows[:, 0] - expert * height
        if not bool(((own >= 0) & (own < height)).all()):
            return None
        found[name] = Place(expert, own)
    return found


def gathered(changes: Mapping[str, Change], model: nn.Module) -> tuple[dict[str, Change], dict[str, Stack]]:
    """Changes of layers by the names that files have for them, as changes of what the class has in their place.

    Args:
        changes: by the name of the layer; none of them is a module of the class.
        model: of the class, with weights or without.

    Returns:
        Those of layers that the class has by another name, or not at all; and those of parameters that several layers
        of the files become, by their names.

    Raises:
        ValueError: factors that do not fit, or whose place in the class is not known.
    """
    written = as_written(model) if isinstance(model, PreTrainedModel) else None
    groups = {} if written is None else {name: group for group in written.groups.values() for name in group.stored}
    renamed, together = dict[str, Change](), dict[str, dict[str, Change]]()
    for layer, change in changes.items():
        group = groups.get(f"{layer}{WEIGHT}")
        if group is None or group.conversion is None:
            renamed[layer if group is None else group.made[0].removesuffix(WEIGHT)] = change
        else:
            together.setdefault(group.made[0], {})[f"{layer}{WEIGHT}"] = change
    state, stacks = model.state_dict(), {}
    for name, own in together.items():
        found = places(groups[next(iter(own))], tuple(state[name].shape))
        if found is None:
            raise ValueError(f"it is not known where {next(iter(own))} lies in {name}")
        stacks[name] = _stack(own, found, tuple(state[name].shape))
    return renamed, stacks


def _stack(changes: Mapping[str, Change], found: Mapping[str, Place], shape: tuple[int, ...]) -> Stack:
    """One change of factors of each expert, in which those of its layers stand side by side."""
    experts, height, width = shape
    ranks = [0] * experts
    for name, change in changes.items():
        if change.magnitude is not None or change.bias is not None:
            raise ValueError(f"more than two factors for {name}, one of the experts,")
        if change.up.shape != (len(found[name].rows), len(change.down)) or change.down.shape[1:] != (width,):
            raise ValueError(
                f"factors of shapes {tuple(change.up.shape)} and {tuple(change.down.shape)} for {name}, of shape "
                f"{(len(found[name].rows), width)}"
            )
        ranks[found[name].expert] += len(change.down)
    kind = next(iter(changes.values())).up.dtype
    down, up = torch.zeros(experts, max(ranks), width, dtype=kind), torch.zeros(experts, height, max(ranks), dtype=kind)
    filled = [0] * experts
    for name, change in changes.items():
        place, first = found[name], filled[found[name].expert]
        end = first + len(change.down)
        down[place.expert, first:end] = change.down
        up[place.expert, place.rows, first:end] = change.scale * change.up
        filled[place.expert] = end
    return Stack(down, up, 1.0)
