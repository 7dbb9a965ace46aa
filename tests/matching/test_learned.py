"""Learned refinement: lower loss between the twins, the same functions, and the same result for the same seed."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.distillation import distillation_loss, output_of, teacher_targets
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.matching.charts import Charts
from fusionlab.matching.learned import RefinementModule, RefineOptions, random_point, refine
from fusionlab.matching.lessons import Lessons, gather
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.models import generator, random_model, randomize, text_config, timm_model

Batches = list[dict[str, Tensor]]


def quiet(label: str, **settings: Any) -> Trainer:
    """A Trainer that leaves no files and prints nothing."""
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(accelerator="cpu", devices=1, enable_model_summary=False, **{**silent, **settings})


def folded(model: nn.Module) -> Blueprint:
    description = blueprint(model)
    return description.after_folding or description


def turned(description: Blueprint, size: float, seed: int = 0) -> Alignment:
    """A small random element of every continuous group."""
    charts = Charts(description, tuple(description.spaces.values()), 1).double()
    draw = generator(seed)
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        return Alignment(description, charts.elements()[0])


def inputs(model: nn.Module, count: int, batch: int = 16, seed: int = 0) -> Batches:
    """Batches of random inputs, without labels."""
    draw = generator(seed)
    return [{i.name: i.random(batch, draw) for i in blueprint(model).inputs} for _ in range(count)]


def mean_of(models: Sequence[nn.Module]) -> nn.Module:
    merged = copy.deepcopy(models[0])
    with torch.no_grad():
        for parameters in zip(merged.parameters(), *(m.parameters() for m in models), strict=True):
            parameters[0].copy_(torch.stack(parameters[1:]).mean(0))
    return merged


@torch.no_grad()
def excess(models: Sequence[nn.Module], alignments: Sequence[Alignment], batches: Batches) -> float:
    """How much worse the twins' mean does than the teachers' mean output itself (cross-entropy above its entropy)."""
    merged = mean_of([a.apply(m) for a, m in zip(alignments, models, strict=True)])
    total = 0.0
    for batch in batches:
        targets = teacher_targets(models, batch)
        best = -(targets.values * targets.values.clamp_min(1e-30).log()).sum(-1).mean()
        total += float(distillation_loss(output_of(merged, batch), targets, batch) - best)
    return total / len(batches)


def refined(models: Sequence[nn.Module], data: Any, **changes: Any) -> list[Alignment]:
    """Refine from the identity of the folded blueprint."""
    description = folded(models[0])
    start = [Alignment.identity(description) for _ in models]
    return refine(models, description, start, data, RefineOptions(**changes), quiet)


def planted(count: int = 2, size: float = 0.25) -> list[nn.Module]:
    """One small ViT in several bases that are a short way apart."""
    first = random_model("vit-classifier")
    description = folded(first)
    return [first, *(turned(description, size, seed).apply(first) for seed in range(1, count))]


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


def gpt2(**changes: Any) -> nn.Module:
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 20, "n_positions": 16, "vocab_size": 40}
    return GPT2LMHeadModel(GPT2Config(**sizes, **changes))


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
    found = refined(models, data, steps=12, batch_size=8, every=5)
    assert excess(models, found, data) < 0.9 * before
    for end_model, alignment in zip(models, found, strict=True):
        check_preservation(end_model, alignment.apply(end_model), alignment)
        for name, element in alignment.elements.items():
            space = description.spaces[name]
            assert space.group.check(element, space.copies) is None


def test_hidden_units_are_assigned_again():
    """Units that were shuffled between two assignments come back, which no gradient could do."""
    model = random_model("vit-classifier")
    description = folded(model)
    draw = generator(3)
    orders = {n: s.group.random(s.copies, draw) for n, s in description.spaces.items() if s.role in ("ffn", "heads")}
    shuffled = Alignment(description, orders)
    models = [model, shuffled.apply(model)]
    found = refined(models, inputs(model, 2), steps=3, every=1, learning_rate=1e-6)
    expected = shuffled.inverse()
    for name in orders:
        assert torch.equal(found[1].element(name), expected.element(name)), name
    kept = refined(models, inputs(model, 2), steps=3, every=0, learning_rate=1e-6)
    for name in orders:
        assert isinstance(description.spaces[name].group, Permutation)
        assert torch.equal(kept[1].element(name), description.spaces[name].group.identity()), name


def test_points_lie_on_the_simplex_and_on_edges_as_often_as_asked():
    """Weights sum to one; of four models a share `edges` of the points has two of them alone, each pair alike."""
    draw = numpy.random.default_rng(0)
    points = numpy.array([random_point(4, RefineOptions(edges=0.25), draw) for _ in range(4000)])
    numpy.testing.assert_allclose(points.sum(1), 1)
    pairs = [tuple(numpy.flatnonzero(point)) for point in points if (point > 0).sum() == 2]
    assert abs(len(pairs) / 4000 - 0.25) < 0.03
    counts = [pairs.count(pair) for pair in set(pairs)]
    assert len(counts) == 6
    assert min(counts) > 120
    two = numpy.array([random_point(2, RefineOptions(), draw) for _ in range(4000)])
    # Beta(10, 10): mean 1/2, variance 1 / 84.
    assert abs(two[:, 0].mean() - 0.5) < 0.01
    assert abs(two[:, 0].var() * 84 - 1) < 0.1


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


@torch.no_grad()
def labelled(model: nn.Module, batches: Batches) -> Batches:
    return [{**batch, "labels": output_of(model, batch).argmax(-1)} for batch in batches]


@pytest.mark.parametrize("kind", ["vit", "timm"])
def test_labels_teach_too(kind):
    """Labels lower their own loss half way; without them in the data the error says so."""
    model = random_model("vit-classifier") if kind == "vit" else random_model("timm-plain")
    models = [model, turned(folded(model), 0.25).apply(model)]
    data = labelled(model, inputs(model, 10))
    found = refined(models, data, steps=60, batch_size=32, target="labels")

    def accuracy(alignments: Sequence[Alignment]) -> float:
        merged = mean_of([a.apply(m) for a, m in zip(alignments, models, strict=True)])
        with torch.no_grad():
            hits = [(output_of(merged, b).argmax(-1) == b["labels"]).double().mean() for b in data]
        return float(torch.stack(hits).mean())

    assert accuracy(found) > accuracy([Alignment.identity(folded(model))] * 2) + 0.1
    with pytest.raises(InputError, match="labels"):
        refined(models, inputs(model, 1), steps=1, target="labels")


def test_labels_in_the_data_are_not_looked_at_by_default():
    models = planted()
    data = inputs(models[0], 2)
    wrong = [{**batch, "labels": torch.zeros(len(batch["pixel_values"]), dtype=torch.long)} for batch in data]
    plain, with_labels = (refined(models, d, steps=3) for d in (data, wrong))
    assert all(torch.equal(plain[1].elements[n], e) for n, e in with_labels[1].elements.items())


def test_each_model_teaches_alone_on_its_own_inputs():
    """With inputs of their own, the loss is against that one model; models that disagree show the difference."""
    models = [random_model("vit-classifier", seed=seed) for seed in (0, 1)]
    ours, theirs = inputs(models[0], 1, seed=2), inputs(models[0], 1, seed=3)
    description = folded(models[0])
    module = RefinementModule(models, [Alignment.identity(description)] * 2, RefineOptions())
    pools = [gather(models, source, own, 16, with_targets=True) for own, source in enumerate((ours, theirs))]
    (lessons,) = Lessons(pools, 1, 32, seed=0)
    for own, (lesson, source) in enumerate(zip(lessons, (ours, theirs), strict=True)):
        with torch.no_grad():
            expected = output_of(models[own], lesson.batch).softmax(-1)
        assert lesson.own == own
        assert lesson.targets is not None
        torch.testing.assert_close(lesson.targets.values, expected)
        drawn = {tuple(row.flatten().tolist()) for row in lesson.batch["pixel_values"]}
        assert drawn == {tuple(row.flatten().tolist()) for row in source[0]["pixel_values"]}
    # The same when targets are too large to keep and are computed for each lesson.
    late = [
        gather(models, s, own, 16, True, memory=s[0]["pixel_values"].nbytes) for own, s in enumerate((ours, theirs))
    ]
    (again,) = Lessons(late, 1, 32, seed=0)
    assert all(lesson.targets is None for lesson in again)
    point = module.twins()[0]
    assert float(module._loss(point, again)) == pytest.approx(float(module._loss(point, lessons)), rel=1e-6)
    found = refined(models, (ours, theirs), steps=2)
    check_preservation(models[1], found[1].apply(models[1]), found[1])


def test_texts_of_several_lengths_are_drawn_with_their_masks():
    """Batches padded to different lengths stay apart; hidden tokens do not change the loss."""
    model = randomize(gpt2(), seed=0)
    models = [model, turned(folded(model), 0.1).apply(model)]
    draw = generator(0)
    data = []
    for length in (5, 9):
        mask = torch.ones(6, length, dtype=torch.long)
        mask[:3, length - 2 :] = 0
        data.append({"input_ids": torch.randint(40, (6, length), generator=draw), "attention_mask": mask})
    pool = gather(models, data, None, 100, with_targets=True)
    lengths = {lesson.batch["input_ids"].shape for lesson, _ in zip(pool.draw(6, generator(1)), range(8), strict=False)}
    assert lengths == {(6, 5), (6, 9)}
    found = refined(models, data, steps=3, batch_size=6)
    other = [{**b, "input_ids": torch.where(b["attention_mask"] == 0, 7, b["input_ids"])} for b in data]
    same = refined(models, other, steps=3, batch_size=6)
    for name, element in found[1].elements.items():
        torch.testing.assert_close(same[1].elements[name], element, rtol=0, atol=1e-6)


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


def test_half_precision_end_models_are_refined_in_float32():
    """bfloat16 checkpoints: the descent is that of the same numbers in float32, the twin keeps the type."""
    models = [m.to(torch.bfloat16) for m in planted()]
    data = [{n: x.float() for n, x in b.items()} for b in inputs(models[0], 2)]
    found = refined(models, data, steps=3)
    assert found[1].elements["residual"].dtype == torch.float64
    assert {x.dtype for x in found[1].apply(models[1]).state_dict().values()} == {torch.bfloat16}
    module = RefinementModule(models, found, RefineOptions())
    assert {x.dtype for twin in module.twins() for x in twin.values()} == {torch.float32}


def test_rotations_alone_stay_rotations():
    """Without general elements what lies inside heads is orthogonal to rounding; with them it is not."""
    models = planted()
    for general in (False, True):
        found = refined(models, inputs(models[0], 2), steps=4, general=general)
        element = found[1].element("layers.0.qk")
        error = float((element @ element.mT - torch.eye(element.shape[-1], dtype=torch.float64)).abs().max())
        assert error > 1e-3 if general else error < 1e-12


def test_only_chosen_spaces_are_learned():
    models = planted()
    description = folded(models[0])
    chosen = [s for s in description.spaces.values() if s.role == "attention.qk"]
    start = [Alignment.identity(description)] * 2
    found = refine(models, description, start, inputs(models[0], 2), RefineOptions(steps=3), quiet, spaces=chosen)
    assert set(found[1].elements) == {s.name for s in chosen}


def test_another_anchor_stays():
    models = planted()
    description = folded(models[0])
    start = [Alignment.identity(description)] * 2
    found = refine(models, description, start, inputs(models[0], 2), RefineOptions(steps=3), quiet, anchor=1)
    assert found[1].elements == {}
    assert found[0].elements


BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"steps": 0}, "steps is 0"),
    ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"batch_size": 0}, "batch_size is 0"),
    ({"target": "teacher"}, "target is 'teacher'"),
    ({"concentration": -1.0}, "concentration is -1.0"),
    ({"edges": 1.5}, "edges is 1.5"),
    ({"every": -1}, "every is -1"),
    ({"seed": -1}, "seed is -1"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_options_are_checked_where_they_are_written(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        RefineOptions(**changes)


def test_what_does_not_fit_is_refused():
    models = planted()
    description, plain = folded(models[0]), blueprint(models[0])
    start, data = [Alignment.identity(description)] * 2, inputs(models[0], 1)
    with pytest.raises(InputError, match="1 alignments"):
        refine(models, description, start[:1], data)
    with pytest.raises(InputError, match="another blueprint"):
        refine(models, plain, start, data)
    with pytest.raises(InputError, match="3 sets of batches for 2 models"):
        refine(models, description, start, (data, data, data))
    with pytest.raises(InputError, match="no batch"):
        refine(models, description, start, ([], []))
    with pytest.raises(InputError, match="anchor is 2"):
        refine(models, description, start, data, anchor=2)
    units = [s for s in description.spaces.values() if s.role == "ffn"]
    with pytest.raises(InputError, match="continuous space"):
        refine(models, description, start, data, spaces=units)
