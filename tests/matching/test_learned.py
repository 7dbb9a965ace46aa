"""Learned refinement: lower loss between the twins, the same functions, and the same result for the same seed."""

from collections.abc import Callable

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.evaluation.preservation import check_preservation
from fusionlab.matching.learned import RefinementModule
from fusionlab.matching.lessons import Lessons, gather
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.symmetry import Alignment
from tests.matching.refining import excess, folded, gpt2, inputs, planted, quiet, refined, turned
from tests.symmetry.models import generator, randomize, text_config, timm_model


def test_planted_twin_is_found_again():
    """The mean of a model and its turned twin has lost much of it; refined, it is nearly the model."""
    models = [model.float() for model in planted()]
    data, fresh = inputs(models[0], 20), inputs(models[0], 4, seed=1)
    before = excess(models, [Alignment.identity(folded(models[0]))] * 2, fresh)
    after = excess(models, refined(models, data, steps=120, batch_size=32), fresh)
    assert before > 0.1
    assert after < 0.1 * before


def test_several_twins_are_found_together():
    """All share one basis afterwards: the mean of three is nearly the model, and that of every two most of it."""
    models = [model.float() for model in planted(3)]
    data, fresh = inputs(models[0], 20), inputs(models[0], 4, seed=1)
    start = [Alignment.identity(folded(models[0]))] * 3
    found = refined(models, data, steps=120, batch_size=32)
    assert found[0].elements == {}
    assert excess(models, found, fresh) < 0.3 * excess(models, start, fresh)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pair, theirs = [models[one], models[other]], [found[one], found[other]]
        assert excess(pair, theirs, fresh) < 0.4 * excess(pair, start[:2], fresh)


def bert() -> nn.Module:
    return BertForSequenceClassification(text_config(BertConfig))


def llama() -> nn.Module:
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 40}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads))


def opt() -> nn.Module:
    """ReLU units, each with a factor of its own."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "ffn_dim": 20, "vocab_size": 40, "num_attention_heads": 3}
    return OPTForCausalLM(OPTConfig(**sizes, max_position_embeddings=32, word_embed_proj_dim=24))


def t5() -> nn.Module:
    sizes = {"d_model": 24, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 3, "vocab_size": 40}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "bert": bert,
    "gpt2": gpt2,
    "gpt2-untied": lambda: gpt2(tie_word_embeddings=False),
    "llama": llama,
    "opt": opt,
    "t5": t5,
    "timm": lambda: timm_model("vit_tiny_patch16_224"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_descends_and_keeps_its_functions(family):
    """A few steps from a turned and permuted twin: lower loss between, and both functions to 1e-8 in float64."""
    model = randomize(FAMILIES[family](), seed=0)
    description = folded(model)
    models = [model, turned(description, 0.1).apply(model)]
    data = inputs(model, 4, batch=4)
    before = excess(models, [Alignment.identity(description)] * 2, data)
    # Without mixtures, so that what is measured is what is descended on.
    found = refined(models, data, steps=12, batch_size=8, every=5, mixtures=0)
    assert excess(models, found, data) < 0.9 * before
    for end_model, alignment in zip(models, found, strict=True):
        check_preservation(end_model, alignment.apply(end_model), alignment)
        for name, element in alignment.elements.items():
            space = description.spaces[name]
            assert space.group.check(element, space.copies) is None


def test_only_gradients_move_the_coordinates():
    """A step without any leaves them where they are: a decay would draw the twins back to where they started."""
    models = planted()
    module = RefinementModule(models, [Alignment.identity(folded(models[0]))] * 2, RefineOptions())
    coordinates = list(module.charts.parameters())
    for seed, parameter in enumerate(coordinates):
        parameter.data = torch.randn(parameter.shape, generator=generator(seed), dtype=parameter.dtype)
        parameter.grad = torch.zeros_like(parameter)
    before = [parameter.detach().clone() for parameter in coordinates]
    assert before
    found = module.configure_optimizers()
    found["optimizer"].step()
    assert all(torch.equal(old, new) for old, new in zip(before, coordinates, strict=True))


def test_same_seed_same_result_and_inputs_stay():
    models = planted()
    states = [{n: x.clone() for n, x in m.state_dict().items()} for m in models]
    data = inputs(models[0], 4)
    first, again, other = (refined(models, data, steps=8, every=3, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(first[1].elements[n], e) for n, e in again[1].elements.items())
    assert any(not torch.equal(first[1].elements[n], e) for n, e in other[1].elements.items())
    for model, state in zip(models, states, strict=True):
        assert all(torch.equal(x, state[n]) for n, x in model.state_dict().items())
        assert all(p.requires_grad for p in model.parameters())


def test_half_precision_end_models_are_refined_in_float32():
    """bfloat16 checkpoints: the descent is that of the same numbers in float32, the twin keeps the type."""
    models = [m.to(torch.bfloat16) for m in planted()]
    data = [{n: x.float() for n, x in b.items()} for b in inputs(models[0], 2)]
    found = refined(models, data, steps=3)
    assert found[1].elements["residual"].dtype == torch.float64
    assert {x.dtype for x in found[1].apply(models[1]).state_dict().values()} == {torch.bfloat16}
    module = RefinementModule(models, found, RefineOptions())
    assert {x.dtype for twin in module.twins() for x in twin.values()} == {torch.float32}


def test_held_out_inputs_stop_early_and_a_checkpoint_resumes(tmp_path):
    """The module is an ordinary one: val_loss can be watched, and a run that was cut in two ends in the same place."""
    models = planted()
    description = folded(models[0])
    start = [Alignment.identity(description)] * 2
    options = RefineOptions(steps=12, every=5, batch_size=16)
    pools = [gather(models, inputs(models[0], 4), None, 64, with_targets=True)]

    def module() -> RefinementModule:
        return RefinementModule(models, start, options)

    held_out = DataLoader(inputs(models[0], 1, seed=5), batch_size=None)  # type: ignore[arg-type]
    stop = EarlyStopping("val_loss", patience=0, min_delta=100.0, check_on_train_epoch_end=False)
    trainer = quiet("", max_steps=12, callbacks=[stop], val_check_interval=2, num_sanity_val_steps=0)
    watched = module()
    trainer.fit(watched, DataLoader(Lessons(pools, 12, 16, 0), batch_size=None), held_out)
    assert trainer.global_step == 4
    assert "val_loss" in trainer.callback_metrics
    assert {"train_loss", "val_loss"} <= trainer.progress_bar_metrics.keys()

    # The same batch at every step, since no loader is asked to remember where it was.
    plain = inputs(models[0], 1) * 12
    whole = module()
    quiet("", max_steps=12).fit(whole, DataLoader(plain, batch_size=None))  # type: ignore[arg-type]
    keep = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=7)
    cut = module()
    quiet("", max_steps=7, callbacks=[keep], enable_checkpointing=True).fit(cut, DataLoader(plain, batch_size=None))  # type: ignore[arg-type]
    resumed = module()
    path = str(tmp_path / "last.ckpt")
    quiet("", max_steps=12).fit(resumed, DataLoader(plain, batch_size=None), ckpt_path=path)  # type: ignore[arg-type]
    for name, element in whole.alignments()[1].elements.items():
        torch.testing.assert_close(resumed.alignments()[1].elements[name], element, rtol=0, atol=1e-6)
