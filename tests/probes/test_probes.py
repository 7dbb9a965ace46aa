"""Synthetic inputs: what each architecture takes, the same for the same seed, with every special token in its place."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LukeConfig,
    LukeForEntityClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.probes import probes
from fusionlab.probes.images import IMAGES, noise
from fusionlab.probes.tokens import Vocabulary, random_text
from fusionlab.symmetry import blueprint
from tests.commands.small import bert, randomized, vit
from tests.probes.models import MODELS, SMALL, TEXT, Tokenizer, clip, writer
from tests.symmetry.models import laws


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_runs_on_its_probes_which_follow_the_seed(name: str) -> None:
    """Finite outputs, the number asked for, equal for one seed and different for another; the model is left alone."""
    model = MODELS[name]().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    first, again, other = (probes(model, 10, seed=seed, batch_size=4, length=12) for seed in (0, 0, 1))
    assert [len(next(iter(batch.values()))) for batch in first] == [4, 4, 2]
    assert all(torch.equal(a[key], b[key]) for a, b in zip(first, again, strict=True) for key in a)
    assert any(not torch.equal(a[key], b[key]) for a, b in zip(first, other, strict=True) for key in a)
    assert model.training
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    with torch.no_grad():
        for batch in first:
            assert torch.isfinite(logits(model.eval(), batch)).all()


def test_global_random_numbers_are_left_where_they_were() -> None:
    """Texts are sampled by transformers, which draws from torch's global generator."""
    model = writer()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    probes(model, 4, length=8)
    assert torch.equal(torch.rand(3), expected)


@laws
@given(
    kind=st.sampled_from(sorted(IMAGES)),
    channels=st.sampled_from([1, 3]),
    height=st.integers(4, 17),
    width=st.integers(4, 17),
    seed=st.integers(0, 100),
)
def test_images_are_finite_from_0_to_1_and_not_all_alike(
    kind: str, channels: int, height: int, width: int, seed: int
) -> None:
    images = IMAGES[kind](6, channels, height, width, torch.Generator().manual_seed(seed))
    assert images.shape == (6, channels, height, width)
    assert torch.isfinite(images).all()
    assert images.min() >= 0
    assert images.max() <= 1
    assert images.flatten(1).std(1).max() > 0.01
    assert not torch.equal(images[0], images[1])


def test_smooth_noise_is_smooth_and_pixels_are_not() -> None:
    """Neighbouring pixels agree: the correlation that natural images have and independent pixels lack."""

    def agreement(images: torch.Tensor) -> float:
        centred = images - images.mean((2, 3), keepdim=True)
        return float((centred[..., 1:] * centred[..., :-1]).mean() / centred.square().mean())

    draw = torch.Generator().manual_seed(0)
    assert agreement(noise(64, 1, 32, 32, draw)) > 0.6
    assert agreement(IMAGES["drawings"](64, 3, 32, 32, draw)) > 0.6
    assert abs(agreement(IMAGES["pixels"](64, 1, 32, 32, draw))) < 0.05


def test_writing_is_light_on_dark() -> None:
    images = IMAGES["drawings"](200, 1, 8, 8, torch.Generator().manual_seed(0))
    assert images.median() < 0.1
    assert images.amax((1, 2, 3)).median() > 0.6


def test_images_run_over_the_range_of_the_preprocessor() -> None:
    """0 and 1 become (0 - mean) / std and (1 - mean) / std of each channel; -1 and 1 without a preprocessor."""
    model = randomized(ViTForImageClassification(ViTConfig(**SMALL, image_size=8, patch_size=4)), 0)
    plain = torch.cat([batch["pixel_values"] for batch in probes(model, 50, "pixels")])
    assert -1 <= plain.min() < -0.98
    assert 0.98 < plain.max() <= 1
    mean, std = (0.1, 0.5, 0.9), (0.5, 0.25, 0.2)
    scaled = torch.cat([batch["pixel_values"] for batch in probes(model, 50, "pixels", mean=mean, std=std)])
    expected = (plain / 2 + 0.5 - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)
    assert torch.allclose(scaled, expected, atol=1e-5)


@laws
@given(count=st.integers(1, 6), length=st.integers(4, 12), seed=st.integers(0, 100), pads=st.booleans())
def test_special_tokens_stand_where_they_belong_and_nowhere_else(
    count: int, length: int, seed: int, pads: bool
) -> None:
    """CLS first, SEP at the end of the text, padding and a mask of 0 after it, ordinary tokens between."""
    vocabulary = Vocabulary(31, first=3, end=4, pad=0 if pads else None, special=frozenset({0, 1, 3, 4, 5}))
    text = random_text(count, length, vocabulary, torch.Generator().manual_seed(seed))
    for ids, mask in zip(text["input_ids"].tolist(), text["attention_mask"].tolist(), strict=True):
        used = sum(mask)
        assert mask == [1] * used + [0] * (length - used)
        assert pads or used == length
        assert (ids[0], ids[used - 1], ids[used:]) == (3, 4, [0] * (length - used))
        assert not set(ids[1 : used - 1]) & vocabulary.special


def test_a_tokenizer_knows_special_tokens_better_than_the_config() -> None:
    batch = probes(BertForSequenceClassification(BertConfig(**TEXT)), 8, tokenizer=Tokenizer(), length=10)[0]
    assert (batch["input_ids"][:, 0] == Tokenizer.cls_token_id).all()
    ends = batch["attention_mask"].sum(1) - 1
    assert (batch["input_ids"].gather(1, ends[:, None]) == Tokenizer.sep_token_id).all()


@pytest.mark.parametrize(("kind", "expected"), [("generated", 128), ("auto", 128), ("tokens", 32)])
def test_texts_that_models_write_are_longer_than_random_ones(kind: str, expected: int) -> None:
    """Where nothing is said, and as far as the model has positions; fewer of the long ones are in a batch."""
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 31}
    for places, longest in ((200, expected), (20, 18)):
        batches = probes(randomized(GPT2LMHeadModel(GPT2Config(n_positions=places, **sizes)), 0), 70, kind)
        shapes = [tuple(batch["input_ids"].shape) for batch in batches]
        assert shapes == ([(32, 128), (32, 128), (6, 128)] if longest == 128 else [(70, longest)])


def loving(token: int) -> nn.Module:
    """A causal model that nearly always goes on with one token."""
    model = writer()
    with torch.no_grad():
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
        model.transformer.ln_f.bias.fill_(1.0)
        model.transformer.ln_f.weight.zero_()
        model.lm_head.weight[token] = 1.0
    return model


def test_a_causal_model_writes_what_it_finds_likely() -> None:
    """Generated texts are full of the token that the model loves, random ones are not."""
    for kind, least, most in (("generated", 0.8, 1.0), ("tokens", 0.0, 0.2)):
        ids = torch.cat([batch["input_ids"] for batch in probes(loving(7), 20, kind, length=10)])[:, 1:]
        assert least <= float((ids == 7).float().mean()) <= most


def test_a_masked_model_fills_in_what_it_finds_likely() -> None:
    """The same for a model that fills in hidden tokens, of which some stay; special tokens are never filled in."""
    model = randomized(BertForMaskedLM(BertConfig(**TEXT)), 0)
    with torch.no_grad():
        model.cls.predictions.decoder.bias[7] = 50.0
        model.cls.predictions.decoder.bias[3] = 90.0
    (batch,) = probes(model, 100, "generated", tokenizer=Tokenizer(), length=18)
    inside = batch["attention_mask"].bool()
    inside[:, 0] = False
    inside &= batch["input_ids"] != Tokenizer.sep_token_id
    hidden = batch["input_ids"] == Tokenizer.mask_token_id
    assert (batch["input_ids"][inside & ~hidden] == 7).float().mean() > 0.9
    assert 0.1 < hidden[inside].float().mean() < 0.2
    assert not hidden[~inside].any()
    assert (batch["input_ids"][:, 1:] != Tokenizer.cls_token_id).all()


def test_a_sequence_is_no_longer_than_the_model_reaches() -> None:
    """Its table of positions, under either name for it; where there is none, what the blueprint knows to be taken."""
    audio = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    places = {"max_source_positions": 8, "max_target_positions": 10, "num_mel_bins": 4}
    whisper = WhisperForConditionalGeneration(WhisperConfig(vocab_size=31, **audio, **heads, **ids, **places))
    (batch,) = probes(randomized(whisper, 0), 2)
    assert batch["decoder_input_ids"].shape == (2, 8)
    assert logits(whisper, batch).isfinite().all()
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    relative = randomized(T5ForConditionalGeneration(T5Config(vocab_size=31, **t5, decoder_start_token_id=0)), 0)
    known = {one.name: one.shape for one in blueprint(relative).inputs}
    for length in (5, 32):
        (batch,) = probes(relative, 2, length=length)
        assert {name: batch[name].shape[1] for name in known} == {
            name: min(length, longest) for name, (longest,) in known.items()
        }


@pytest.mark.parametrize(("count", "length"), [(512, 6), (8, 6), (1400, 12)])
def test_several_models_write_in_turn(count: int, length: int) -> None:
    """Texts of both end models are among the probes, in equal numbers, few or many."""
    ids = torch.cat([batch["input_ids"] for batch in probes([loving(7), loving(9)], count, length=length)])[:, 1:]
    shares = [float((ids == token).float().mean()) for token in (7, 9)]
    assert min(shares) > 0.4


def test_texts_are_written_in_pieces_whose_scores_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many tokens together, or so many texts if they are short; each piece by the next model."""
    module, pieces = sys.modules["fusionlab.probes.tokens"], []

    def written(model: nn.Module, count: int, length: int, *rest: object) -> dict[str, torch.Tensor]:
        pieces.append((id(model), count))
        return dict.fromkeys(("input_ids", "attention_mask"), torch.ones(count, length, dtype=torch.int64))

    monkeypatch.setattr(module, "written_text", written)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 31, "n_positions": 200}
    models = [randomized(GPT2LMHeadModel(GPT2Config(**sizes)), seed) for seed in (0, 1)]
    for length, expected in ((128, [64, 64, 64, 64, 64, 64, 64, 52]), (10, [250, 250])):
        pieces.clear()
        probes(models, 500, "generated", length=length)
        assert [count for _, count in pieces] == expected
        assert [model for model, _ in pieces] == [id(models[place % 2]) for place in range(len(pieces))]
    pieces.clear()
    probes(models, 1000, "generated", length=10)
    assert [count for _, count in pieces] == [256, 256, 256, 232]


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    for kind, model, words in (
        ("photos", vit(), "expected one of auto"),
        ("tokens", vit(), "take no text"),
        ("drawings", bert(), "take no images"),
        ("generated", bert(), "writes no text"),
    ):
        with pytest.raises(InputError, match=words):
            probes(model, 4, kind)
    with pytest.raises(InputError, match="count is 0"):
        probes(vit(), 0)
    broken = writer()
    broken.get_output_embeddings().weight.data.fill_(torch.nan)
    with pytest.raises(InputError, match="fails when it writes a text"):
        probes(broken, 4)
    with pytest.raises(InputError, match="mean has 2 numbers"):
        probes(clip(), 4, mean=(0.5, 0.5))


def test_text_is_as_long_as_masks_that_were_given_with_an_example() -> None:
    """A mask of ones is a constant of the example, and kinds of tokens are as many as its tokens."""
    model = BertForSequenceClassification(BertConfig(**TEXT)).eval()
    ids, draw = torch.randint(0, 31, (3, 12)), torch.Generator().manual_seed(0)
    kinds = torch.randint(0, 2, (3, 12), generator=draw)
    blueprint(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": kinds})
    (batch,) = probes(model, 4, length=16)
    assert {tuple(values.shape) for values in batch.values()} == {(4, 12)}
    assert logits(model, batch).shape == (4, 2)


def test_entities_beside_the_words_are_as_many_as_their_places() -> None:
    """However long the text is."""
    sizes = {"entity_vocab_size": 11, "entity_emb_size": 4, "num_labels": 2}
    model = LukeForEntityClassification(LukeConfig(**TEXT, **sizes)).eval()
    (batch,) = probes(model, 4, length=16)
    assert batch["input_ids"].shape[1] > batch["entity_ids"].shape[1]
    assert batch["entity_position_ids"].shape[:2] == batch["entity_ids"].shape
    assert logits(model, batch).shape == (4, 2)
