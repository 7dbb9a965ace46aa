"""What is added to few inputs: synthetic ones like them, answered by the end models, as far as memory allows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.learning.batches import DistillationBatch
from fusionlab.learning.collecting import collect
from fusionlab.learning.distillation import teacher_targets
from fusionlab.learning.supplement import Supplement, like_given
from fusionlab.matching.recipe import recipe
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.polish import PolishOptions
from fusionlab.probes import inputs_like
from fusionlab.stages import run
from tests.symmetry.models import generator, random_model, randomize

MANY = 10**6
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


def writer(seed: int = 0, vocabulary: int = 31) -> nn.Module:
    config = GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=40, vocab_size=vocabulary, bos_token_id=1)
    return randomize(GPT2LMHeadModel(config), seed).eval()


def images(count: int, seed: int = 0) -> dict[str, Tensor]:
    """Images whose channels have ranges of their own."""
    config = random_model("vit-classifier").config
    shape = (count, config.num_channels, config.image_size, config.image_size)
    scale = torch.arange(1, config.num_channels + 1).view(1, -1, 1, 1)
    return {"pixel_values": scale * torch.rand(shape, generator=generator(seed)) - 0.5}


def texts(count: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(31, (count, length), generator=generator(1))}


def sizes(pool: Any) -> list[int]:
    return [len(group) for group in pool.groups]


def classifiers() -> list[nn.Module]:
    return [random_model("vit-classifier", seed).float().eval() for seed in range(2)]


def added(models: list[nn.Module], **how: Any) -> Supplement:
    return Supplement(**{"synthetic": 400, "like": like_given(models, 0), **how})


def test_images_are_like_the_given_ones() -> None:
    """Of their shape and type, in the range of each channel; others for another seed, the same for one."""
    given = images(6)["pixel_values"].double()
    made = [
        inputs_like({"pixel_values": given, "labels": torch.arange(6)}, classifiers(), 50, generator(s))
        for s in (0, 0, 1)
    ]
    assert all(one is not None and set(one) == {"pixel_values"} for one in made)
    first, again, other = (one["pixel_values"] for one in made if one is not None)
    assert first.shape == (50, *given.shape[1:])
    assert first.dtype == given.dtype
    torch.testing.assert_close(first, again)
    assert float((first - other).abs().max()) > 0.1
    low, high = given.amin((0, 2, 3)), given.amax((0, 2, 3))
    assert bool((first.amin((0, 2, 3)) >= low - 1e-6).all())
    assert bool((first.amax((0, 2, 3)) <= high + 1e-6).all())
    assert bool((first.amax((0, 2, 3)) - first.amin((0, 2, 3)) > 0.9 * (high - low)).all())


def test_texts_are_written_as_long_as_the_longest() -> None:
    """Tokens of the vocabulary; a mask as long, for models that take one."""
    models = [writer(0), writer(1)]
    found = inputs_like({**texts(3, 9), "attention_mask": torch.ones(3, 9)[..., :9].long()}, models, 20, generator(0))
    assert found is not None
    assert {name: tuple(value.shape) for name, value in found.items()} == dict.fromkeys(
        ("input_ids", "attention_mask"), (20, 9)
    )
    assert 0 <= int(found["input_ids"].min()) <= int(found["input_ids"].max()) < 31
    pool = collect(models, [texts(2, 7), texts(2, 12)], None, MANY, True, supplement=added(models))
    written = [group for group in pool.groups if "attention_mask" in group.inputs]
    assert [tuple(group.inputs["input_ids"].shape) for group in written] == [(round(400 * (1 - 4 / 1000)), 12)]
    assert [group.answers for group in written] == [12]


def test_written_texts_are_shorter_than_long_ones() -> None:
    """Of 128 tokens at most, with an answer for each of them."""
    config = GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=140, vocab_size=31, bos_token_id=1)
    models = [randomize(GPT2LMHeadModel(config), seed).eval() for seed in (0, 1)]
    how = {"synthetic": 8, "like": like_given(models, 0)}
    pool = collect(models, [texts(2, 140)], None, MANY, True, supplement=Supplement(**how))
    given, written = pool.groups
    assert [(len(group), group.answers, group.inputs["input_ids"].shape[1]) for group in pool.groups] == [
        (2, 140, 140), (8, 128, 128),
    ]  # fmt: skip
    assert written.targets is not None
    assert given.targets is not None
    expected = teacher_targets(models, written.inputs)
    torch.testing.assert_close(written.targets.values, expected.values, atol=1e-5, rtol=1e-4)


def test_masked_texts_need_the_mask(tmp_path: Path) -> None:
    """The config names none; the tokenizer in the folder that the model was loaded from does."""
    tokenizer = byte_tokenizer()
    config = BertConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=20)
    model = randomize(BertForMaskedLM(config), 0).eval()
    given = {"input_ids": torch.randint(5, len(tokenizer), (4, 8), generator=generator(0))}
    assert like_given([model], 0)(given, 10) is None
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = like_given([BertForMaskedLM.from_pretrained(tmp_path).eval()], 0)(given, 10)
    assert found is not None
    assert found["input_ids"].shape == (10, 8)
    assert bool((found["input_ids"] == tokenizer.mask_token_id).any())


def no_inputs() -> dict[str, tuple[nn.Module, Mapping[str, Tensor]]]:
    classifier = BertForSequenceClassification(BertConfig(**SIZES, vocab_size=31)).eval()
    return {
        "a classifier of texts": (classifier, texts(3, 6)),
        "images and texts": (writer(), {**images(3), **texts(3, 6)}),
        "two sequences": (writer(), {**texts(3, 6), "decoder_input_ids": texts(3, 6)["input_ids"]}),
        "images and a mask": (random_model("vit-classifier"), {**images(3), "pixel_mask": torch.ones(3, 4, 4)}),
        "numbers that are no images": (nn.Linear(4, 2), {"x": torch.rand(3, 4)}),
        "integers": (nn.Linear(4, 2), {"x": torch.ones(3, 3, 4, 4, dtype=torch.long)}),
        "texts for a module of one's own": (nn.Embedding(31, 4), texts(3, 6)),
    }


@pytest.mark.parametrize("name", no_inputs())
def test_nothing_is_like_others(name: str) -> None:
    """Where models write no texts, and for what is no image, nothing is made."""
    model, given = no_inputs()[name]
    assert inputs_like(given, [model], 5, generator(0)) is None


def test_a_model_that_fails_at_writing_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class may have faults that only writing meets: a warning, and what was given is all that is learned from."""
    models = [writer(0), writer(1)]

    def failing(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("Tensor must have a stride divisible by 2\nand more")

    monkeypatch.setattr(models[0], "generate", failing)
    assert sizes(collect(models, [texts(3, 6)], None, MANY, True, supplement=added(models))) == [3]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("no texts could be written (Tensor must have a stride divisible by 2).")


def test_end_models_answer_what_is_added() -> None:
    """Given ones first, then mixtures, then synthetic ones, with the mean answer of all models to each."""
    models = classifiers()
    pool = collect(models, [images(6)], None, MANY, True, supplement=added(models, mixtures=50))
    (group,) = pool.groups
    count = round(400 * (1 - 6 / 1000))
    assert len(group) == 50 + count
    pixels = group.inputs["pixel_values"]
    assert torch.equal(pixels[:6], images(6)["pixel_values"])
    made = inputs_like(images(6), models, count, generator(0))
    assert made is not None
    torch.testing.assert_close(pixels[50:], made["pixel_values"])
    assert group.targets is not None
    expected = teacher_targets(models, {"pixel_values": pixels})
    torch.testing.assert_close(group.targets.values, expected.values, atol=1e-5, rtol=1e-4)


def test_more_given_ones_are_joined_by_fewer() -> None:
    """From all of them down to none at 1,000; none where they were not asked for, or would not be of use."""
    assert [Supplement(synthetic=4000).synthetic_count(n) for n in (0, 16, 250, 999, 1000, 10**6)] == [
        4000, 3936, 3000, 4, 0, 0,
    ]  # fmt: skip
    models = classifiers()
    assert sizes(collect(models, [images(20)] * 50, None, MANY, True, supplement=added(models))) == [1000]
    assert sizes(collect(models, [images(6)], None, MANY, True, supplement=added(models, synthetic=0))) == [6]
    # A tenth of the examples is of use, and a tenth of the synthetic ones is drawn.
    assert sizes(collect(models, [images(6)], None, 500, True, supplement=added(models))) == [6 + 40]


@pytest.mark.parametrize(("own", "with_targets"), [(1, True), (None, False)])
def test_nobody_teaches_alone_on_what_is_added(own: int | None, with_targets: bool) -> None:
    """A model of some labels would teach its own of inputs of others; labels are not there."""
    models = classifiers()
    assert sizes(collect(models, [images(6)], own, MANY, with_targets, supplement=added(models))) == [6]


def test_what_is_added_stays_within_memory() -> None:
    """Mixtures and synthetic inputs give way alike; nothing is added where memory is full."""
    models = classifiers()
    (whole,) = collect(models, [images(6)], None, MANY, True).groups
    used = sum(whole.nbytes)
    for times, least in ((1, 6), (2, 11), (20, 115)):
        (group,) = collect(
            models, [images(6)], None, MANY, True, memory=times * used, supplement=added(models, mixtures=300)
        ).groups
        assert least <= len(group) <= 6 * times
        assert sum(group.nbytes) <= times * used


def test_targets_of_texts_go_before_texts_do() -> None:
    """Scores for every token of a vocabulary are far larger than the texts, so they are computed again instead."""
    models = [writer(0), writer(1)]
    given = texts(4, 10)
    (whole,) = collect(models, [given], None, MANY, True).groups
    pool = collect(models, [given], None, MANY, True, memory=3 * sum(whole.nbytes), supplement=added(models))
    assert all(group.targets is None for group in pool.groups)
    assert sum(sizes(pool)) > 12
    assert sum(sum(group.nbytes) for group in pool.groups) <= 3 * sum(whole.nbytes)


def test_synthetic_inputs_are_joined_by_none() -> None:
    """What is synthetic already is as much as was asked for."""
    models = classifiers()
    drawn, own = Inputs.synthetic(models, 8), Inputs.from_batches([images(6)], 2)
    for options in (RefineOptions(), PolishOptions()):
        assert drawn.suited(options) == replace(options, synthetic=0)
        assert own.suited(options) == options
    assert options.synthetic == 4000


def test_few_inputs_are_known_to_be_few() -> None:
    """Data of all models, where they have a length below a thousand."""
    models, dataset = classifiers(), [{"pixel_values": torch.zeros(1)}] * 1000
    few, many = (DataLoader(dataset[:count], batch_size=8) for count in (999, 1000))
    assert Inputs.from_batches(few, 2).are_few
    assert not Inputs.from_batches(many, 2).are_few
    assert not Inputs.from_batches([few, many], 2).are_few
    assert not Inputs.from_batches([images(6)], 2).are_few
    assert not Inputs.synthetic(models, 8).are_few


@pytest.mark.parametrize("synthetic", [0, 5])
def test_plans_say_whether_synthetic_inputs_are_added(synthetic: int) -> None:
    """In a polish and in learned matching; by weights alone nothing is learned."""
    options = {"steps": 1, "synthetic": synthetic}
    learned, polished = {"mine": recipe("learned", **options)}, PolishOptions(**options)
    plans = [FusionPlan(learned), FusionPlan({}, polish=polished), FusionPlan(learned, polish=polished)]
    assert [plan.adds_synthetic for plan in plans] == [synthetic > 0] * 3
    assert not FusionPlan({"weights": recipe("weights")}).adds_synthetic


def learned(inputs: Inputs, synthetic: int) -> list[Tensor]:
    """What matching and polish make of two models: the twins' and the merge's parameters."""
    models = dict(zip("ab", classifiers(), strict=True))
    how: dict[str, Any] = {"steps": 2, "batch_size": 8, "synthetic": synthetic}
    plan = FusionPlan({"mine": recipe("learned", **how)}, polish=PolishOptions(**how))
    fuser = Fuser(models, plan, inputs)
    kept = run(fuser.fuse()).kept
    assert kept is not None
    twins = run(fuser.match("mine")).twins
    return [torch.cat([one.flatten() for one in model.state_dict().values()]) for model in (*twins, kept.model)]


def test_given_inputs_are_joined_and_synthetic_ones_are_not() -> None:
    """The twin that moves and the polished merge become others by what joins; nothing joins synthetic inputs."""
    given, drawn = Inputs.from_batches([images(6)], 2), Inputs.synthetic(classifiers(), 6)
    (alone, joined), (as_they_are, asked) = ([learned(one, n) for n in (0, 400)] for one in (given, drawn))
    moved = [float((one - other).norm() / one.norm()) for one, other in zip(alone, joined, strict=True)]
    assert moved[0] < 1e-6
    assert min(moved[1:]) > 1e-4
    for one, other in zip(as_they_are, asked, strict=True):
        assert float((one - other).norm() / one.norm()) < 1e-6


def test_a_batch_tells_its_bytes() -> None:
    """Of its inputs, and of its targets where they are kept."""
    batch = DistillationBatch(images(6))
    assert batch.nbytes == (batch.inputs["pixel_values"].nbytes, 0)
    targets = teacher_targets(classifiers(), images(6))
    assert replace(batch, targets=targets).nbytes[1] == targets.values.nbytes
