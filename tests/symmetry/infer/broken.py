"""What is found of a module that reads one tensor: every group and where it acts, shown to hold."""

import torch
from torch import Tensor, nn

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.trace import generic
from tests.symmetry.infer.networks.demand import places_of, told

# Everything that is found: the group, how many copies, where it acts.
Groups = dict[tuple[str, tuple[int, ...]], set[tuple[str, int]]]


def linear(name: str, dim: int) -> set[tuple[str, int]]:
    """Where a layer with a bias writes (0) or reads (1)."""
    return {(f"{name}.weight", dim)} | ({(f"{name}.bias", 0)} if dim == 0 else set())


def groups(description: Blueprint) -> Groups:
    """What a blueprint says; a second space of the same group and copies is one "again"."""
    found: Groups = {}
    for space in description.spaces.values():
        key = str(space.group), space.copies
        key = (f"{space.group} again", space.copies) if key in found else key
        assert key not in found, told(description)
        found[key] = places_of(description, space.name)
    return found


def exact(model: nn.Module, description: Blueprint, inputs: dict[str, Tensor]) -> None:
    """Random elements leave the outputs of the module itself, on parameters and inputs that nobody saw."""
    model, generator = model.double(), torch.Generator().manual_seed(7)
    start = {name: generic(tensor, generator) for name, tensor in model.state_dict().items()}
    drawn = {n: torch.randn(x.shape, generator=generator, dtype=torch.float64) for n, x in inputs.items()}

    def output(state: dict[str, Tensor]) -> Tensor:
        model.load_state_dict(state)
        return model(**drawn).detach()

    before = output(start)
    for known in (description, description.after_folding):
        if known is not None:
            alignment = Alignment.random(known, torch.Generator().manual_seed(8))
            error = (output(alignment.apply(start)) - before).abs().max() / before.abs().max()
            assert error <= EXACT, f"changed by {error:.1e}\n{told(description)}"


def found(model: nn.Module, *shape: int, batch: int = 4, seed: int = 0) -> Blueprint:
    """The blueprint of a module that reads one tensor ``x``, which is exact."""
    inputs = {"x": torch.randn(batch, *shape, generator=torch.Generator().manual_seed(3))}
    description = infer(model, inputs, "broken", seed)
    exact(model, description, inputs)
    return description
