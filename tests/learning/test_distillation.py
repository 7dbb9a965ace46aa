"""Tokens that count in a loss: those of the side that writes, and what labels say of a decoder without a mask."""

import torch

from fusionlab.learning.collecting import collect
from fusionlab.learning.distillation import token_mask
from tests.statistics.passes import model_of
from tests.symmetry.models import generator


def test_the_mask_of_an_encoder_is_not_that_of_what_a_decoder_writes() -> None:
    """However long both are."""
    rows, encoder, decoder = torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]]), torch.tensor([[1, 1, 1, 0]])
    batch = {"input_ids": encoder, "attention_mask": encoder}
    found = token_mask(rows, batch)
    assert found is not None
    assert found.tolist() == encoder.tolist()
    assert token_mask(rows, {**batch, "decoder_input_ids": decoder}) is None
    found = token_mask(rows, {**batch, "decoder_input_ids": decoder, "decoder_attention_mask": decoder})
    assert found is not None
    assert found.tolist() == decoder.tolist()


def test_labels_say_which_tokens_of_a_decoder_count() -> None:
    """As collators of transformers give them; a mask that is there stays."""
    models = [model_of("t5-lm", seed).float() for seed in range(2)]
    tokens, labels = (torch.randint(5, 20, (3, length), generator=generator(0)) for length in (6, 4))
    labels[0, 2:] = -100
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
    batch["decoder_input_ids"] = labels.clamp(min=0)
    for mask in (None, torch.tensor([[1, 1, 1, 0]] * 3)):
        given = batch if mask is None else {**batch, "decoder_attention_mask": mask}
        (group,) = collect(models, [given], None, 10, True).groups
        wanted = labels != -100 if mask is None else mask
        assert torch.equal(group.inputs["decoder_attention_mask"].bool(), wanted.bool())
        assert "labels" not in group.inputs
