"""The inputs of a model that was traced: numbers, and ids of which it is known how many there are."""

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, RobertaConfig, RobertaForMaskedLM

from fusionlab.evaluation.preservation import check_preservation
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.inputs import Input


class Masked(nn.Module):
    """Words beside numbers, some of which are hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.enter, self.leave = nn.Embedding(11, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, x: Tensor, bool_masked_pos: Tensor) -> Tensor:
        hidden = torch.tanh(self.words(ids) + self.enter(x))
        return self.leave(torch.where(bool_masked_pos[..., None] > 0, hidden, -hidden))


def test_ids_have_a_vocabulary_and_masks_two_values() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = {
        "ids": torch.randint(11, (3, 4), generator=draw),
        "x": torch.randn(3, 4, 6, generator=draw),
        "bool_masked_pos": torch.randint(2, (3, 4), generator=draw),
    }
    found = {one.name: one for one in infer(Masked(), inputs, "masked").inputs}
    assert found == {
        "ids": Input("ids", (4,), 11), "x": Input("x", (4, 6)), "bool_masked_pos": Input("bool_masked_pos", (4,), 2)
    }  # fmt: skip


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 30}


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_texts_are_no_longer_than_positions(name: str) -> None:
    """A model of few positions is checked on texts that it takes; RoBERTa counts its own from behind the padding."""
    torch.manual_seed(0)
    if name == "gpt2":
        model: PreTrainedModel = GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=7)
        )
    else:
        model = RobertaForMaskedLM(RobertaConfig(**SMALL, max_position_embeddings=9))
    described = blueprint(model)
    assert described.inputs == (Input("input_ids", (7,), 30),)
    alignment = Alignment.random(described, torch.Generator().manual_seed(0))
    assert check_preservation(model, alignment.apply(model), alignment).exact < 1e-10
