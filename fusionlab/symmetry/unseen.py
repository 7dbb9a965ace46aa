"""Entries of a grown model that change nothing, whatever they hold: which they are, and other numbers in their place.

What is new in a grown model and reads for nothing, or is read by nothing, is no part of its function. An alignment may
put other numbers there before it acts (`Alignment.filling`), and the twin computes what the model does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Where a module keeps which entries they are, and of which numbers; copies of it do too, checkpoints do not.
_NOTE = "unseen_entries"


def note_unseen(model: nn.Module, entries: Mapping[str, Tensor]) -> None:
    """Keep with a model which entries of its parameters change nothing, whatever they hold, all together.

    Args:
        model: a grown model, whose copies keep it too, until their numbers are others; files do not.
        entries: by name of a parameter, as the model's folded blueprint has it, bool of the parameter's shape.
    """
    setattr(model, _NOTE, (dict(entries), _digests(model) if entries else {}))


def unseen_entries(model: nn.Module) -> dict[str, Tensor]:
    """The entries of a model's parameters that are known to change nothing: by name, bool of the parameter's shape.

    None are known of a model whose numbers were changed since, such as a twin: an alignment moves and mixes them.
    Parameters of another shape, as those of a head of other labels, may be others.
    """
    entries: dict[str, Tensor]
    digests: dict[str, tuple[torch.Size, str]]
    entries, digests = getattr(model, _NOTE, ({}, {}))
    if not entries:
        return {}
    now = _digests(model)
    is_same = all(now.get(name, (None,))[0] != one[0] or now[name] == one for name, one in digests.items())
    return entries if is_same else {}


def _digests(model: nn.Module) -> dict[str, tuple[torch.Size, str]]:
    """The shape of each parameter and a digest of its numbers, which stays where they are brought to a wider type."""
    found = {}
    for name, parameter in model.named_parameters():
        numbers = parameter.detach().float().cpu().contiguous().numpy()
        found[name] = (parameter.shape, hashlib.blake2b(numbers.data, digest_size=16).hexdigest())
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
