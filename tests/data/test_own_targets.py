"""A file alone becomes pairs of texts and targets, for a checkpoint with an encoder and a decoder."""

from pathlib import Path
from typing import Any

import pytest
from transformers import T5Config, T5ForConditionalGeneration

from fusionlab import checkpoints
from fusionlab.data import OwnData, TextToText
from fusionlab.data.choosing import Use
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import jsonl


@pytest.fixture
def t5(tmp_path: Path) -> Path:
    """A checkpoint whose decoder begins with a token of its own, and its tokenizer."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(vocab_size=259, **sizes, decoder_start_token_id=7))
    checkpoints.save(model.eval(), tmp_path / "t5")
    byte_tokenizer().save_pretrained(tmp_path / "t5")
    return tmp_path / "t5"


def fitted(path: str, checkpoint: Path, use: Use = "measuring", **options: Any) -> tuple[TextToText, str]:
    module, told = OwnData(path, **options).fitted(checkpoints.read(checkpoint), use)
    assert isinstance(module, TextToText)
    return module, told


def test_texts_and_their_targets(tmp_path: Path, t5: Path) -> None:
    """Both columns are told, the decoder begins as the checkpoint's does, and texts get their prefix."""
    rows = [{"id": f"n{i}", "article": f"a long text {i}", "summary": f"text {i}"} for i in range(10)]
    path = jsonl(tmp_path / "news.jsonl", rows)
    module, told = fitted(path, t5, prefix="sum: ")
    assert "text from `article`, target from `summary`" in told
    assert "--data.target_column" in told
    tokenizer = module.tokenizer
    (batch,) = module.test_dataloader()
    assert (batch["decoder_input_ids"][:, 0] == 7).all()
    known = [labels[labels != -100] for labels in batch["labels"]]
    read = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in batch["input_ids"]]
    assert [f"sum: a long {tokenizer.decode(x, skip_special_tokens=True)}" for x in known] == read
    swapped, _ = fitted(path, t5, text_column="summary", target_column="id")
    assert (swapped.text_column, swapped.target_column) == ("summary", "id")
    with pytest.raises(InputError, match=r"news.jsonl has no column 'abstract'; it has id, article, summary"):
        fitted(path, t5, target_column="abstract")


def test_texts_that_are_only_looked_at_may_be_their_own_targets(tmp_path: Path, t5: Path) -> None:
    """Measuring asks for a column of targets."""
    path = jsonl(tmp_path / "plain.jsonl", [{"comment": f"text {i}"} for i in range(10)])
    module, told = fitted(path, t5, "inputs")
    assert "text from `comment`, target from `comment`" in told
    assert (module.text_column, module.target_column) == ("comment", "comment")
    with pytest.raises(InputError, match=r"plain.jsonl: no columns tell texts from what is to be made of them"):
        fitted(path, t5)
