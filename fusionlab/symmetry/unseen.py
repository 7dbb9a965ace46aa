"""Entries of a grown model that change nothing, whatever they hold: which they are, and other numbers in their place.

What is new in a grown model and reads for nothing, or is read by nothing, is no part of its function. An alignment may
put other numbers there before it acts (`Alignment.filling`), and the twin computes what the model does.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Where a module keeps which entries they are; copies of it do too, checkpoints do not.
_NOTE = "unseen_entries"


def note_unseen(model: nn.Module, entries: Mapping[str, Tensor]) -> None:
    """Keep with a model which entries of its parameters change nothing, whatever they hold, all together.

    Args:
        model: a grown model, whose copies keep it too; files do not.
        entries: by name of a parameter, as the model's folded blueprint has it, bool of the parameter's shape.
    """
    setattr(model, _NOTE, dict(entries))


def unseen_entries(model: nn.Module) -> dict[str, Tensor]:
    """The entries of a model's parameters that are known to change nothing: by name, bool of the parameter's shape."""
    found: dict[str, Tensor] = getattr(model, _NOTE, {})
    return found


def masked(tensor: Tensor, entries: Tensor) -> Tensor:
    """The numbers of some entries of a tensor, and NaN everywhere else."""
    return tensor.masked_fill(~entries.to(tensor.device), torch.nan)


def filled_state(state: Mapping[str, Tensor], filling: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A state with other numbers in some entries.

    Args:
        state: parameters by name; not modified.
        filling: by name, tensors of the parameters' shapes; where one is NaN the parameter stays.

    Returns:
        The state itself where there is nothing to fill.
    """
    if not filling:
        return state
    found = {name: state[name] for name in filling}
    given = {name: filling[name].to(tensor) for name, tensor in found.items()}
    return {**state, **{name: torch.where(x.isnan(), found[name], x) for name, x in given.items()}}
