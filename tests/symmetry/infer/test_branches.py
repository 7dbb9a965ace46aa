"""Where a model's code follows the values of its tensors is said, with what was found there."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import fusionlab
from fusionlab.symmetry.infer.trace import trace
from tests.symmetry.infer.cases.own import Branches


class Follows(nn.Module):
    """Looks at a value twice in one line, at a number, and at a shape, which is none of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for row in x:
            x = self.layer(x) if row.sum() > 0 else -self.layer(x)
        return x * int(x.abs().argmax()) if x.shape[0] > 1 else x


def notes(model: nn.Module, x: Tensor) -> tuple[str, ...]:
    return trace(model, {"x": x}).branches


def test_the_branch_that_was_taken_is_said() -> None:
    """By file, line and truth value; the notes of a blueprint carry it."""
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    (told,) = notes(Branches(), x)
    lines = Path(__file__).with_name("cases").joinpath("own.py").read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines, 1) if "bool(x.sum() > 0)" in line)
    assert told.startswith(f"the model's code looks at a value at own.py:{place}, which was {bool(x.sum() > 0)}: ")
    assert told in fusionlab.blueprint(Branches(), {"x": x}).notes


@pytest.mark.parametrize(("signs", "found"), [((1, 1), "True"), ((-1, -1), "False"), ((1, -1, 1), "True and False")])
def test_every_value_of_a_line_is_said_once(signs: tuple[int, ...], found: str) -> None:
    x = torch.rand(len(signs), 4, generator=torch.Generator().manual_seed(0)) * torch.tensor(signs)[:, None]
    branch, number = notes(Follows(), x)
    assert re.search(rf"test_branches\.py:\d+, which was {found}: ", branch)
    assert re.search(r"test_branches\.py:\d+: ", number), "no truth value"


def test_models_that_follow_nothing_say_nothing() -> None:
    """What transformers' models share asks for masks whether they are all ones, which is no branch of the model."""
    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9, vocab_size=20)
    assert trace(BertModel(config), {"input_ids": torch.tensor([[1, 2], [3, 4]])}).branches == ()
    assert trace(nn.ReLU(), {"input": torch.ones(2, 4)}).branches == ()


class Resized(nn.Module):
    """Writes into a part of a tensor, of a length that another tensor says, as SigLIP 2 does with its positions."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.places, self.down = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 8)), nn.Linear(8, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        placed = x.new_zeros(len(x), x.shape[1], 8)
        for row, (length,) in enumerate(lengths.tolist()):
            placed[row, :length] = self.places[:length]
        return self.down(torch.relu(self.up(x) + placed))


def test_what_is_written_at_listed_places_is_followed() -> None:
    """Numbers in a list are asked for one at a time: otherwise the trace would lose what is written in place."""
    inputs = {
        "x": torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0)),
        "lengths": torch.tensor([[3], [4]]),
    }
    found = fusionlab.blueprint(Resized(), inputs)
    assert {str(space.group) for space in found.spaces.values()} == {"S(8)"}
    assert found.untouched() == ("down.bias",)
    assert [note for note in found.notes if "test_branches.py" in note]
