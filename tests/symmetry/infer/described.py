"""What is inferred for a sample or a family's case, once in a process."""

from functools import cache

import torch
from torch import Tensor, nn

from fusionlab.symmetry import Blueprint, blueprint
from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.infer.blueprint import infer
from tests.families.harness import Case, random_model
from tests.symmetry.infer.cases.sample import Sample
from tests.symmetry.written import written


def built(sample: Sample) -> nn.Module:
    """The sample's model, the same at every call."""
    torch.manual_seed(0)
    return sample.build()


@cache
def inferred(sample: Sample) -> Blueprint:
    """The blueprint of a sample, inferred from one batch."""
    return infer(built(sample), sample.inputs(torch.Generator().manual_seed(3)), sample.name)


def inferred_again(case: Case) -> tuple[Blueprint, Blueprint]:
    """The blueprint that is written down for a family's case, and the one that is inferred for it."""
    model = random_model(case)
    by_hand = written(model)
    if by_hand.architecture not in DESCRIBED:
        return by_hand, blueprint(model)
    generator = torch.Generator().manual_seed(1)
    inputs: dict[str, Tensor] = {i.name: i.random(2, generator) for i in by_hand.inputs}
    return by_hand, infer(model, inputs, by_hand.architecture)
