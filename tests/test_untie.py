"""Untying an output embedding keeps the function and frees the residual stream."""

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from fusionlab import checkpoints
from fusionlab.cli import main
from fusionlab.forward import logits
from fusionlab.models import untie
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.groups import OrthogonalFixingOnes, Permutation

TOKENS = {"input_ids": torch.arange(8)[None]}


def gpt2(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 31, "n_positions": 20}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()


def test_untied_model_computes_the_same_and_may_be_rotated() -> None:
    model = gpt2(0)
    model.generation_config.update(temperature=0.6, eos_token_id=[0, 7])
    free = untie(model)
    assert all(torch.equal(tensor, free.state_dict()[name]) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(logits(free, TOKENS), logits(model, TOKENS), rtol=1e-5, atol=1e-5)
    assert free.lm_head.weight is not free.transformer.wte.weight
    assert model.lm_head.weight is model.transformer.wte.weight
    assert free.generation_config is not model.generation_config
    assert (free.generation_config.temperature, free.generation_config.eos_token_id) == (0.6, [0, 7])
    tied_after, free_after = blueprint(model).after_folding, blueprint(free).after_folding
    assert tied_after is None or isinstance(tied_after.spaces["residual"].group, Permutation)
    assert free_after is not None
    assert isinstance(free_after.spaces["residual"].group, OrthogonalFixingOnes)


def test_model_without_a_tie_is_copied() -> None:
    model = untie(gpt2(0))
    again = untie(model)
    assert again is not model
    assert all(torch.equal(t, again.state_dict()[name]) for name, t in model.state_dict().items())


@pytest.mark.parametrize("untying", [False, True])
def test_match_writes_what_it_is_told_to(untying: bool, tmp_path: Path) -> None:
    """Tied twins stay tied and load; with --untie they load untied, the same function, and come closer."""
    for seed in (0, 1):
        checkpoints.save(gpt2(seed), tmp_path / f"gpt2_{seed}")
    arguments = [str(tmp_path / "gpt2_0"), "--anchor", str(tmp_path / "gpt2_1"), "--output", str(tmp_path / "out")]
    assert main(["match", *arguments, "--match", "weights", *(["--untie"] if untying else [])]) == 0
    twin = checkpoints.load(tmp_path / "out" / "gpt2_0")
    assert isinstance(twin, GPT2LMHeadModel)
    assert twin.config.tie_word_embeddings is not untying
    before, after = logits(gpt2(0), TOKENS), logits(twin, TOKENS)
    assert float((before - after).abs().max()) < 1e-4 * float(before.abs().max())
