"""What decoders read where data hold nothing but labels: what transformers' own classes make of these in training."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForSequenceClassification,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from fusionlab.forward import forward, with_decoder_tokens
from fusionlab.learning.collecting import collect
from fusionlab.statistics.files import packed
from fusionlab.statistics.gather import gather

BART: dict[str, Any] = {
    "vocab_size": 20, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 16,
}  # fmt: skip
T5: dict[str, Any] = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
TEXTS: dict[str, dict[str, Any]] = {
    "bart": BART,
    "mbart": BART,
    "marian": BART | {"decoder_start_token_id": 0, "pad_token_id": 0},
    "m2m_100": BART,
    "pegasus": BART,
    "plbart": BART,
    "blenderbot": BART,
    "t5": T5 | {"decoder_start_token_id": 0},
    "umt5": T5 | {"decoder_start_token_id": 0},
    "fsmt": BART | {"src_vocab_size": 20, "tgt_vocab_size": 20, "langs": ["en", "de"]},
}
LABELS = torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100]])


def batch() -> dict[str, Tensor]:
    return {"input_ids": torch.tensor([[4, 9, 11, 2], [7, 12, 13, 2]]), "labels": LABELS}


def text_model(kind: str) -> Any:
    torch.manual_seed(0)
    model: Any = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **TEXTS[kind]))
    return model.eval()


@pytest.mark.parametrize("kind", TEXTS)
def test_labels_alone(kind: str) -> None:
    """The logits are those of transformers' own forward with labels, at every token that counts."""
    model = text_model(kind)
    # FSMT's forward makes what its decoder reads of the encoder's tokens, labels or not.
    told = {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(LABELS.clone())} if kind == "fsmt" else {}
    with torch.no_grad():
        expected, found = model(**batch(), **told).logits, forward(model, batch()).logits
    torch.testing.assert_close(found[LABELS != -100], expected[LABELS != -100])
    own = {**batch(), "decoder_input_ids": torch.full_like(LABELS, 3)}
    assert with_decoder_tokens(model, own) is own


def test_sounds_and_images() -> None:
    """Encoders of other inputs than texts have decoders too."""
    torch.manual_seed(0)
    config = WhisperConfig(**BART, num_mel_bins=4, max_source_positions=8, max_target_positions=16, pad_token_id=1,
                           decoder_start_token_id=3, bos_token_id=0, eos_token_id=2)  # fmt: skip
    sounds = {"input_features": torch.randn(2, 4, 16), "labels": LABELS}
    vit = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
           "intermediate_size": 16, "image_size": 8, "patch_size": 4}  # fmt: skip
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 16,
            "add_cross_attention": True, "is_decoder": True}  # fmt: skip
    both = VisionEncoderDecoderConfig(encoder=vit, decoder=gpt2, decoder_start_token_id=3, pad_token_id=1)
    images = {"pixel_values": torch.randn(2, 3, 8, 8), "labels": LABELS}
    for model, inputs in (
        (WhisperForConditionalGeneration(config), sounds),
        (VisionEncoderDecoderModel(both), images),
    ):
        with torch.no_grad():
            expected, found = model.eval()(**inputs).logits, forward(model, inputs).logits
        torch.testing.assert_close(found[LABELS != -100], expected[LABELS != -100])


def test_labels_of_classes_stay() -> None:
    """Several labels of a text are no tokens, however their shape is that of a target."""
    config = BartConfig(**BART, num_labels=4, problem_type="multi_label_classification")
    inputs = {**batch(), "labels": torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])}
    assert with_decoder_tokens(BartForSequenceClassification(config), inputs) is inputs


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_statistics(kind: str) -> None:
    """They are of the text that labels hold, without its padding, as if the data had said what the decoder reads."""
    model = text_model(kind)
    whole = with_decoder_tokens(model, batch())
    assert set(whole) == {*batch(), "decoder_input_ids"}
    other = {**whole, "decoder_input_ids": torch.full_like(LABELS, 9)}
    found, expected, others = (
        packed(gather(model, [given], ("gram", "fisher")).values())[1] for given in (batch(), whole, other)
    )
    torch.testing.assert_close(found, expected)
    assert any(not torch.allclose(others[key], value) for key, value in expected.items())


def test_learning() -> None:
    """A descent, which needs no labels, keeps what they say of the decoder's tokens and of those that count."""
    pool = collect([text_model("bart")] * 2, [batch()], None, 8, with_targets=True)
    (group,) = pool.groups
    assert group.inputs["decoder_input_ids"].tolist() == [[2, 5, 6, 7], [2, 8, 2, 1]]
    assert group.inputs["decoder_attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
