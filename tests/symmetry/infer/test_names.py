"""Names of spaces: unique, with the layer in them, and of the kind that their roles say."""

import re
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.dims import Variable
from fusionlab.symmetry.infer.found import Action, Found
from fusionlab.symmetry.infer.names import KINDS, names_of, places_of
from fusionlab.symmetry.roles import Role
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.described import inferred
from tests.symmetry.models import laws

words = st.sampled_from(["encoder", "decoder", "mlp", "attention", "layers", "q", "up"])
numbers = st.sampled_from(["0", "1", "12"])
parameters = st.lists(st.one_of(words, words, numbers), min_size=1, max_size=4).map(
    lambda path: ".".join([*path, "weight"])
)


@laws
@given(
    spaces=st.lists(st.lists(parameters, min_size=1, max_size=3), min_size=1, max_size=8),
    roles=st.lists(st.sampled_from(list(KINDS)), min_size=8, max_size=8),
)
def test_names_are_unique_and_say_the_layer(spaces: list[list[str]], roles: list) -> None:
    found = []
    for names in spaces:
        stretches = tuple((name, 0, i) for i, name in enumerate(names))
        permutation = Action(Permutation(5), dict.fromkeys(stretches, 1), ())
        found.append(Found(Variable(5), stretches, permutation=permutation))
    places = places_of(found, sorted({name for names in spaces for name in names}))
    kinds = dict(zip((one.variable for one in found), roles, strict=False))
    chosen = names_of(found, kinds, places)
    assert max(Counter(chosen.values()).values()) == 1
    for one in found:
        name, layer = chosen[one.variable], places[one.variable].layer
        assert re.findall(r"(?:^|\.)layers\.(\d+)(?:\.|$)", name)[:1] == ([] if layer is None else [str(layer)])
        # The stack and the number by which the layer begins; a space of several layers is in none.
        told = {tuple(re.split(r"(?:^|\.)(\d+)\.", parameter)[:2]) for parameter, _, _ in one.stretches}
        ((*_, first), *others) = told
        assert layer == (None if others or not first.isdigit() else int(first))


class Stack(nn.Module):
    """Two stacks of layers of one name, one of three and one of two, with two kinds of units in each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(self._layer() for _ in range(3))})
        self.decoder = nn.ModuleDict({"layers": nn.ModuleList(self._layer() for _ in range(2))})
        self.enter, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    @staticmethod
    def _layer() -> nn.ModuleDict:
        both = {name: nn.ModuleDict({"up": nn.Linear(8, 5), "down": nn.Linear(5, 8)}) for name in ("first", "second")}
        return nn.ModuleDict(both)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for stack in (self.encoder, self.decoder):
            for layer in stack["layers"]:
                for part in ("first", "second"):
                    x = x + layer[part]["down"](torch.tanh(layer[part]["up"](x)))
        return self.head(x)


def test_layers_of_two_stacks_are_counted_for_themselves() -> None:
    description = infer(Stack(), {"x": torch.randn(3, 4, 6)}, "stack")
    expected = {
        f"{stack}.layers.{layer}.{part}.ffn": layer
        for stack, count in (("encoder", 3), ("decoder", 2))
        for layer in range(count)
        for part in ("first", "second")
    }
    signs = {f"{name}.signs": layer for name, layer in expected.items()}
    assert {name: space.layer for name, space in description.spaces.items()} == {"residual": None, **expected, **signs}


class Towers(nn.Module):
    """Two towers with a stream each, and two stages of one of them: nothing but the modules tells them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.text_tower, self.image_tower = self._tower(8), self._tower(9)
        self.stages = nn.ModuleList(nn.ModuleDict({"up": nn.Linear(n, 12), "down": nn.Linear(12, n)}) for n in (10, 11))
        sizes = ((9, 10), (10, 11), (11, 4), (8, 4))
        self.across = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in sizes)

    @staticmethod
    def _tower(width: int) -> nn.ModuleDict:
        layers = {name: nn.Linear(*sizes) for name, sizes in {"up": (width, 7), "down": (7, width)}.items()}
        return nn.ModuleDict({"enter": nn.Linear(6, width), **layers})

    def forward(self, x: Tensor) -> Tensor:
        streams = []
        for tower in (self.text_tower, self.image_tower):
            stream = tower["enter"](x)
            streams.append(stream + tower["down"](torch.tanh(tower["up"](stream))))
        text, image = streams
        for enter, stage in zip(self.across[:2], self.stages, strict=True):
            image = enter(image)
            image = image + stage["down"](torch.tanh(stage["up"](image)))
        return self.across[3](text) + self.across[2](image)


def test_streams_are_named_by_where_most_of_their_parameters_lie() -> None:
    names = infer(Towers(), {"x": torch.randn(3, 4, 6)}, "towers").spaces
    streams = {name for name in names if "residual" in name}
    assert streams == {f"{place}.residual" for place in ("text_tower", "image_tower", "stages.0", "stages.1")}


@pytest.mark.parametrize(
    ("name", "role", "others"),
    [
        ("mixtral", Role.EXPERTS, {Role.GROUPS}),
        ("deepseek_v3", Role.EXPERTS, {Role.GROUPS}),
        ("mamba2", Role.HEADS, {Role.EXPERTS}),
        ("wav2vec2", Role.GROUPS, {Role.EXPERTS}),
        ("torchvision: resnext", Role.GROUPS, {Role.EXPERTS, Role.HEADS}),
    ],
)
def test_blocks_of_units_are_called_by_what_they_are(name: str, role: Role, others: set[Role]) -> None:
    """Experts have a dimension of their own, groups of them too; a state space's heads have numbers of their own.

    Older versions of transformers norm the groups of a state space by themselves: those are groups.
    """
    found = inferred(next(sample for sample in SAMPLES if sample.name == name))
    roles = set(found.roles())
    assert role in roles
    assert not roles & others
    groups = [space for space in found.spaces if space.endswith("expert_groups")]
    assert groups == (["layers.1.expert_groups"] if name == "deepseek_v3" else [])
