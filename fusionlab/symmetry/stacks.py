"""Stacks: parameters that a model has one by one, as one tensor with a dimension that counts them.

Experts may be modules of a list. A permutation of them moves whole parameters, so what acts on their parameters sees
those of one place in all experts as one tensor, as it sees the experts of models that keep them so. This file only
joins and takes apart; which parameters are one stack a blueprint says (`Blueprint.stacks`).
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

Stacks = Mapping[str, tuple[str, ...]]


def stacked(state: Mapping[str, Tensor], stacks: Stacks) -> Mapping[str, Tensor]:
    """The state with every stack that it has all entries of as one tensor, under the stack's name.

    Args:
        state: parameters by name; not modified.
        stacks: by name, the parameters that it is made of, in order, all of one shape.

    Returns:
        The state itself where there is nothing to stack, as in one that is stacked; else a new dict, each stack in the
        place of its first entry, of shape ``(entries, *shape)``.
    """
    found = {name: entries for name, entries in stacks.items() if all(entry in state for entry in entries)}
    if not found:
        return state
    begins = {entries[0]: name for name, entries in found.items()}
    inside = {entry for entries in found.values() for entry in entries}
    out: dict[str, Tensor] = {}
    for name in state:
        if name in begins:
            out[begins[name]] = torch.stack([state[entry] for entry in found[begins[name]]])
        elif name not in inside:
            out[name] = state[name]
    return out


def apart(state: Mapping[str, Tensor], stacks: Stacks) -> dict[str, Tensor]:
    """The state with the entries of every stack under their own names: views, through which gradients pass."""
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        out.update(zip(stacks[name], tensor.unbind(), strict=True) if name in stacks else [(name, tensor)])
    return out


def entries_of(names: Iterable[str], stacks: Stacks) -> list[str]:
    """The names that a model gives the parameters of some names, of which stacks may be."""
    return [entry for name in names for entry in stacks.get(name, (name,))]
