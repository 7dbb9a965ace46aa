"""The part of a grown model that is new and changes nothing, taken from the model that it is matched to.

A grown model leaves much open: what is read of entries of the stream that nothing writes to, what is written to units
and heads that nothing reads, whole layers but for their outputs. Zeros there halve what the other model has there
twice, where it reads and where it writes. With the other model's own numbers in their place a merge halves it once.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fusionlab.evaluation.preservation import random_logits
from fusionlab.matching.align import align_states
from fusionlab.matching.presets import preset
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.blueprint import FOLDED
from fusionlab.symmetry.change import relative_change
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import apart, entries_of
from fusionlab.symmetry.unseen import filled_state, masked

# The largest change of the logits in float64, relative to the largest, of what is taken to change nothing.
UNSEEN = 1e-11
# Random inputs that each kind of entries is tried on.
TRIED_ON = 2
_NUMBER = re.compile(r"\d+")

# The name and axes of a parameter without numbers, and a part of what is new along each of its dimensions.
Kind = tuple[str, tuple[int, ...]]


@torch.no_grad()
def filled(
    state: Mapping[str, Tensor],
    new: Mapping[str, tuple[Tensor, ...]],
    trial: nn.Module,
    blueprint: Blueprint,
    anchor: nn.Module,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of a grown model with the anchor's wherever they change nothing, and where that is.

    The anchor is brought into the grown model's basis by weights. Each kind of new entries, in all layers at once, is
    kept where forward passes in float64 give the logits that they gave before; `grown` then looks at other inputs.

    Args:
        state: the grown model's, in float64; not modified.
        new: by parameter, for each of its dimensions the part of what is new that an entry belongs to, 0 for none.
        trial: a module of the grown model's architecture, in float64; its values are written over.
        blueprint: of the grown model, in the gauge of `state`.
        anchor: a model of the same architecture; not modified. Parameters of other shapes (a head of other labels) stay
            as they are.

    Returns:
        By name, in float64; folded where the architecture can be. And by name, bool of the same shapes, the entries
        that were taken; none where not just any numbers could stand there.
    """
    described = blueprint.in_gauge((FOLDED,))
    ours = Alignment.identity(described).apply(state)
    whole = blueprint.stacked(anchor.state_dict())
    theirs = {name: tensor.to(ours[name]) for name, tensor in whole.items() if name in ours}
    theirs = {name: theirs[name] if theirs[name].shape == tensor.shape else tensor for name, tensor in state.items()}
    moved, into_one = align_states([ours, theirs], described, preset("weights"))
    theirs = moved.inverse().apply(into_one.apply(theirs))
    filling = Filling(ours.__getitem__, theirs.__getitem__, {name: new[name] for name in ours if name in new})

    def compute(parameter: Callable[[str], Tensor]) -> Tensor:
        trial.load_state_dict(apart({name: parameter(name) for name in ours}, blueprint.stacks))
        return random_logits(trial, blueprint.inputs, count=TRIED_ON)

    reference = take_unseen(filling, kinds_of(trial, filling.new, described), compute)
    found, taken = {name: filling(name) for name in ours}, dict[str, Tensor]()
    for name, kinds in filling.taken.items():
        for chosen in (entries_of_parts(new[name], parts) for parts in kinds):
            # Where both models have the same, as in a norm that was folded, nothing is known of other numbers.
            if not torch.equal(found[name][chosen], ours[name][chosen]):
                taken.setdefault(name, torch.zeros_like(found[name], dtype=torch.bool))[chosen] = True
    change = relative_change(compute(_with_anything(found, taken).__getitem__), reference)
    return found, taken if change <= UNSEEN else {}


class Filling:
    """The parameters of a grown model, with another model's wherever some kinds of new entries are taken from it.

    Args:
        ours: the grown model's, by name, in float64.
        theirs: the other model's, in the same basis.
        new: by name, for each of its dimensions the part of what is new that an entry belongs to, 0 for none.
    """

    def __init__(
        self,
        ours: Callable[[str], Tensor],
        theirs: Callable[[str], Tensor],
        new: Mapping[str, tuple[Tensor, ...]],
    ) -> None:
        self.ours, self.theirs, self.new = ours, theirs, new
        self.taken: dict[str, list[tuple[int, ...]]] = {}

    def __call__(self, name: str) -> Tensor:
        """A parameter; a new tensor where something of it is taken."""
        tensor = self.ours(name)
        if not (kinds := self.taken.get(name)):
            return tensor
        tensor, theirs = tensor.clone(), self.theirs(name)
        for parts in kinds:
            chosen = entries_of_parts(self.new[name], parts)
            tensor[chosen] = theirs[chosen]
        return tensor


def take_unseen(
    filling: Filling, kinds: Mapping[Kind, Sequence[str]], compute: Callable[[Callable[[str], Tensor]], Tensor]
) -> Tensor:
    """Take every kind of new entries that changes no logit, one after the other, each beside those taken before it.

    Args:
        filling: of which nothing is taken yet.
        kinds: with the parameters that have each, in the order in which they are tried.
        compute: gives logits in float64 on `TRIED_ON` inputs, of the model whose parameters a function gives by name.

    Returns:
        The logits before anything was taken.
    """
    reference = compute(filling)
    for (_, parts), names in kinds.items():
        for name in names:
            filling.taken.setdefault(name, []).append(parts)
        if not relative_change(compute(filling), reference) <= UNSEEN:
            for name in names:
                filling.taken[name].remove(parts)
    return reference


def _with_anything(state: Mapping[str, Tensor], entries: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A state with random numbers of a parameter's own size in some of its entries."""
    drawn = torch.Generator().manual_seed(0)
    sizes = {name: state[name].square().mean().sqrt() for name in entries}
    random = {name: size * torch.randn(state[name].shape, generator=drawn).double() for name, size in sizes.items()}
    return filled_state(state, {name: masked(tensor, entries[name]) for name, tensor in random.items()})


def kinds_of(model: nn.Module, new: Mapping[str, tuple[Tensor, ...]], blueprint: Blueprint) -> dict[Kind, list[str]]:
    """The kinds of new entries in a grown model, and the parameters that have each, in all layers.

    New experts are none: they are never picked, so whatever they held would change nothing, in a merge either.

    Args:
        model: of the grown model's architecture. Parameters that it knows by several names are left out.
        new: by parameter, the parts along each of its dimensions.
        blueprint: of the model, whose axes tell maps apart that numbers alone tell apart in names (``fc1``, ``fc2``).
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    uses = Counter(id(parameter) for parameter in named.values())
    found: dict[Kind, list[str]] = {}
    for name in new:
        # Buffers are none of them.
        if any(entry not in named or uses[id(named[entry])] > 1 for entry in entries_of([name], blueprint.stacks)):
            continue
        axes = blueprint.parameters[name]
        of_experts = [any(blueprint.spaces[space].role == Role.EXPERTS for space in spaces_of(axis)) for axis in axes]
        for parts in itertools.product(*(part.unique().tolist() for part in new[name])):
            if any(parts) and not any(part and held for part, held in zip(parts, of_experts, strict=True)):
                found.setdefault((_NUMBER.sub("*", f"{name} {axes}"), parts), []).append(name)
    return found


def entries_of_parts(new: tuple[Tensor, ...], parts: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Indices of the entries that belong to one part along each dimension; they broadcast against each other."""
    return tuple(
        torch.where(along == part)[0].reshape([-1 if other == dim else 1 for other in range(len(new))])
        for dim, (along, part) in enumerate(zip(new, parts, strict=True))
    )
