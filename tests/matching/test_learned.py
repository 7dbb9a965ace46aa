"""Learned refinement: lower loss between the twins, the same functions, and the same result for the same seed."""

from collections.abc import Callable

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
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

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.matching.learned import Refinement
from fusionlab.matching.learned import refined as refined_stages
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import StagedModule, Stages, result_of
from fusionlab.symmetry import Alignment
from tests.matching.refining import excess, folded, gpt2, inputs, planted, quiet, refined, turned
from tests.parts import one_in
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
    "gpt2-untied": lambda: gpt2(tie_word_embeddings=False),
    "llama": llama,
    "opt": opt,
    "t5": t5,
    "timm": lambda: timm_model("vit_tiny_patch16_224"),
}


@pytest.mark.parametrize("family", one_in(3, FAMILIES))
def test_every_family_descends_and_keeps_its_functions(family):
    """A few steps from a turned and permuted twin: lower loss between, and both functions to 1e-8 in float64."""
    model = randomize(FAMILIES[family](), seed=0)
    description = folded(model)
    models = [model, turned(description, 0.1).apply(model)]
    data = inputs(model, 4, batch=4)
    before = excess(models, [Alignment.identity(description)] * 2, data)
    # Nothing is added to the inputs, so that what is measured is what is descended on.
    found = refined(models, data, steps=12, batch_size=8, every=5, mixtures=0, synthetic=0)
    assert excess(models, found, data) < 0.9 * before
    for end_model, alignment in zip(models, found, strict=True):
        check_preservation(end_model, alignment.apply(end_model), alignment)
        for name, element in alignment.elements.items():
            space = description.spaces[name]
            assert space.group.check(element, space.copies) is None


def test_only_gradients_move_the_coordinates():
    """A step without any leaves them where they are: a decay would draw the twins back to where they started."""
    models = planted()
    module = Refinement(models, [Alignment.identity(folded(models[0]))] * 2, inputs(models[0], 1), RefineOptions())
    coordinates = list(module.twins.charts.parameters())
    for seed, parameter in enumerate(coordinates):
        parameter.data = torch.randn(parameter.shape, generator=generator(seed), dtype=parameter.dtype)
        parameter.grad = torch.zeros_like(parameter)
    before = [parameter.detach().clone() for parameter in coordinates]
    assert before
    optimizer, _schedule = module.make_optimizer()
    optimizer.step()
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
    module = Refinement(models, found, data, RefineOptions())
    assert {x.dtype for twin in module.twins.states() for x in twin.values()} == {torch.float32}


class Fit(StagedModule):
    """Stages for a Trainer of the test's own."""

    def __init__(self, make: Callable[[], Stages[list[Alignment]]]) -> None:
        super().__init__()
        self.make = make

    def stages(self) -> Stages[list[Alignment]]:
        return self.make()


class StopAfter(Callback):
    """Stops a fit after some batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.batches -= 1
        trainer.should_stop = self.batches == 0


@pytest.mark.parametrize("steps", [3, 6, 8])
def test_a_descent_that_was_cut_ends_in_the_same_place(tmp_path, steps):
    """Its checkpoint holds the start, the coordinates and their moments, the rate, the orders, which batch is next.

    And the losses.
    """
    models = planted()
    description = folded(models[0])
    units = [space for space in description.spaces.values() if space.role == "ffn"]
    draw = generator(0)
    shuffled = Alignment(description, {s.name: s.group.random(s.copies, draw) for s in units})
    models[1] = shuffled.apply(models[1])
    data, options = inputs(models[0], 4), RefineOptions(steps=9, every=2, batch_size=16)

    def fit(start: Alignment) -> Fit:
        found = [Alignment.identity(description), start]
        return Fit(lambda: result_of(Refinement(models, found, data, options)))

    whole, cut = fit(Alignment.identity(description)), fit(Alignment.identity(description))
    quiet().fit(whole)
    keep = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=steps)
    quiet(callbacks=[keep, StopAfter(steps)], enable_checkpointing=True).fit(cut)
    with pytest.raises(InputError, match="stopped in the middle of 'learned matching'"):
        _ = cut.outcome
    # As if matching by weights had found another start, on another machine: the checkpoint's own counts.
    resumed = fit(shuffled.inverse())
    quiet().fit(resumed, ckpt_path=str(tmp_path / "last.ckpt"))
    assert len(whole.outcome.alignments[1].elements) > len(units)
    for name, element in whole.outcome.alignments[1].elements.items():
        torch.testing.assert_close(resumed.outcome.alignments[1].elements[name], element, rtol=0, atol=1e-7)
    assert resumed.outcome.loss == pytest.approx(whole.outcome.loss, rel=1e-6)


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    """One that did something else, and one of something else altogether."""
    models = planted()
    description, data = folded(models[0]), inputs(models[0], 1)

    def fit(label: str) -> Fit:
        start = [Alignment.identity(description)] * 2
        options = RefineOptions(steps=2)
        return Fit(lambda: refined_stages(models, description, start, data, options, label=label))

    keep = ModelCheckpoint(tmp_path, save_last=True)
    trainer = quiet(callbacks=[keep], enable_checkpointing=True)
    trainer.fit(fit("mine"))
    with pytest.raises(InputError, match="of a run that did 'mine' where this one does 'yours'"):
        quiet().fit(fit("yours"), ckpt_path=str(tmp_path / "last.ckpt"))
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    del saved["stages"]
    torch.save(saved, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="holds no stages of a fusion"):
        quiet().fit(fit("mine"), ckpt_path=str(tmp_path / "other.ckpt"))
