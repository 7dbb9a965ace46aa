"""A file alone becomes pairs of texts with a number, for an encoder without a head."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, CLIPConfig, CLIPModel, T5Config, T5EncoderModel, T5Model

from fusionlab import checkpoints
from fusionlab.checkpoints import Checkpoint
from fusionlab.data import EmbeddingSimilarity, OwnData, TextClassification
from fusionlab.data.purpose import head_of
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import jsonl

SIZES: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 259,
}  # fmt: skip
T5: dict[str, Any] = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 259}
ROWS = [{"id": i, "sentence1": f"a {i}", "sentence2": f"b {i}", "score": i / 4} for i in range(20)]


@pytest.fixture
def encoder(tmp_path: Path) -> Checkpoint:
    """A bare BERT and its tokenizer."""
    checkpoints.save(BertModel(BertConfig(**SIZES)).eval(), tmp_path / "bert")
    byte_tokenizer().save_pretrained(tmp_path / "bert")
    return checkpoints.read(tmp_path / "bert")


def test_pairs_with_a_number(tmp_path: Path, encoder: Checkpoint) -> None:
    """Columns are told, and the number of texts that say the same, by which labels are divided."""
    module, told = OwnData(jsonl(tmp_path / "sts.jsonl", ROWS)).fitted(encoder)
    assert isinstance(module, EmbeddingSimilarity)
    assert "texts from `sentence1` and `sentence2`; how alike they are from `score` (up to 5)" in told
    assert module.pooling == "mean"
    (batch,) = module.test_dataloader()
    assert batch["input_ids"].shape[0] == len(batch["labels"]) == 8
    assert float(batch["labels"].max()) <= 1
    assert (batch["labels"] * 20 % 1 == 0).all()


def test_numbers_up_to_one_are_taken_as_they_are(tmp_path: Path, encoder: Checkpoint) -> None:
    """Switches too: 1 for texts that say the same."""
    rows = [{"question1": "a", "question2": "b", "label": i % 2} for i in range(10)]
    module: Any = OwnData(jsonl(tmp_path / "same.jsonl", rows)).fitted(encoder)[0]
    assert module.scale == 1
    (batch,) = module.test_dataloader()
    assert set(batch["labels"].tolist()) <= {0.0, 1.0}
    assert batch["labels"].dtype == torch.float32


def test_texts_that_are_only_looked_at_need_no_partner(tmp_path: Path, encoder: Checkpoint) -> None:
    """Measuring asks for pairs and their numbers, and says which option names them."""
    plain = jsonl(tmp_path / "plain.jsonl", [{"text": f"a {i}"} for i in range(10)])
    module, told = OwnData(plain).fitted(encoder, "inputs")
    assert isinstance(module, TextClassification)
    assert "text from `text`" in told
    assert "labels" not in next(iter(module.train_dataloader()))
    with pytest.raises(InputError, match=r"plain.jsonl: .* expected data.label_column"):
        OwnData(plain).fitted(encoder)
    three = jsonl(tmp_path / "three.jsonl", [{"a": "x", "b": "y", "c": "z", "score": 0.5}] * 10)
    with pytest.raises(InputError, match=r"three.jsonl: which columns hold the two texts of a pair is not clear"):
        OwnData(three).fitted(encoder)
    module, _ = OwnData(three, text_column="c", pair_column="a").fitted(encoder)
    assert (module.text_column, module.pair_column) == ("c", "a")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (T5EncoderModel(T5Config(**T5)), ("pairs", "similarity")),
        (T5Model(T5Config(**T5)), None),
        (
            CLIPModel(CLIPConfig(text_config=SIZES, vision_config={**SIZES, "image_size": 8, "patch_size": 4})),
            ("images and class names", "classification"),
        ),
    ],
    ids=["an encoder", "an encoder and a decoder", "texts and images"],
)
def test_only_what_reads_texts_alone_compares_texts(model: Any, known: tuple[str, str] | None, tmp_path: Path) -> None:
    """Of other models the sentence says what is known."""
    checkpoints.save(model.eval(), tmp_path / "model")
    found = checkpoints.read(tmp_path / "model")
    if known:
        assert (head_of(found).kind, head_of(found).task) == known
    else:
        with pytest.raises(InputError, match="for which no data can be guessed from a file; expected a model that"):
            head_of(found)
