"""Texts end with the token for the end where a model reads more of its parameters then, and nowhere else."""

import pytest
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from fusionlab.symmetry.infer.endings import ended
from fusionlab.symmetry.infer.shrink import shrink
from fusionlab.symmetry.inputs import Input
from tests.symmetry.infer.test_real_sizes import on_meta

WORDS, END = 11, 7
TEXT = (Input("input_ids", (6,), WORDS),)


class Causal(nn.Module):
    """A text as the sum of what stands before each of its tokens, which for the first is nothing."""

    def __init__(self, end: int | None = END) -> None:
        super().__init__()
        self.config = PretrainedConfig()
        self.config.eos_token_id = end
        self.end = END if end is None else end
        self.words, self.before = nn.Embedding(WORDS, 4), nn.Linear(4, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        words = self.words(input_ids)
        so_far = self.before(words).cumsum(1)
        return words + torch.cat([torch.zeros_like(words[:, :1]), so_far[:, :-1]], 1)


class ToldAtTheEnd(Causal):
    """Of that the place of the first token that ends a text: the first place where there is none."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids)[torch.arange(len(input_ids)), (input_ids == self.end).int().argmax(-1)]


class OneEnd(Causal):
    """A text that does not end once is refused."""

    def forward(self, input_ids: Tensor) -> Tensor:
        if bool(((input_ids == self.end).sum(-1) != 1).any()):
            raise ValueError("expected one end in each text")
        return super().forward(input_ids)


@pytest.mark.parametrize("made", [ToldAtTheEnd, OneEnd])
def test_a_text_ends_where_more_is_read(made: type[Causal]) -> None:
    (found,) = ended(made(), TEXT)
    assert found.last == END


@pytest.mark.parametrize("end", [None, WORDS])
def test_a_text_ends_nowhere_without_a_token_for_it(end: int | None) -> None:
    """None, or one that the text's words do not hold."""
    assert ended(ToldAtTheEnd(end), TEXT) == TEXT


def test_a_choice_of_two_has_no_end() -> None:
    """Which patches are hidden is no text, also where the token for the end is 1."""
    model, choice = ToldAtTheEnd(1), (Input("input_ids", (6,), 2),)
    assert ended(model, choice) == choice


def test_a_text_whose_tokens_are_all_read_ends_nowhere() -> None:
    assert ended(Causal(), TEXT) == TEXT


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("CLIPTextModelWithProjection", 49407),
        ("BartForSequenceClassification", 2),
        ("BartForConditionalGeneration", None),
        ("LlamaForCausalLM", None),
    ],
)
def test_ends_of_real_classes(name: str, last: int | None) -> None:
    """By their small models, in the real config's numbers."""
    found = shrink(on_meta(name))
    small = found.inputs[0].last
    assert (None if small is None else found.tokens.get(small, small)) == last
