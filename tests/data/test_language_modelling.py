"""Blocks of text: nothing is lost between them, evaluation masks are fixed, padding is not predicted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from fusionlab.data import LanguageModelling
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import FEELINGS, jsonl

TEXTS = [text for text, _ in FEELINGS]
SAME: dict[str, Any] = {"val_split": None, "test_split": "train"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of the sample's sentences."""
    return jsonl(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])


def test_bytes_give_back_any_text() -> None:
    """One token a byte, 259 in all; decoding is the inverse."""
    tokenizer = byte_tokenizer()
    text = "Ünïcode \n\n  and\ttabs, 漢字 \N{GRINNING FACE}"
    tokens = tokenizer(text)["input_ids"]
    assert len(tokens) == len(text.encode())
    assert tokenizer.decode(tokens) == text
    assert len(tokenizer) == 259
    assert tokenizer(text + "<end>")["input_ids"][-1] == tokenizer.eos_token_id


def test_causal_blocks_are_the_text(path: str) -> None:
    """Put together, the blocks are all texts with the separator between; padding has no label."""
    data = LanguageModelling(path, "bytes", separator="\n\n", max_length=50, eval_batch_size=4, **SAME)
    stream = []
    for batch in data.test_dataloader():
        labels, real = batch["labels"], batch["attention_mask"].bool()
        assert (labels[real] == batch["input_ids"][real]).all()
        assert (labels[~real] == -100).all()
        stream += batch["input_ids"][real].tolist()
    assert data.tokenizer.decode(stream) == "".join(f"{text}\n\n" for text in TEXTS)


def test_without_a_separator_texts_end_with_the_token_for_it(path: str) -> None:
    """One end for each text."""
    data = LanguageModelling(path, "bytes", max_length=50, **SAME)
    ids = torch.cat([batch["input_ids"][batch["attention_mask"] == 1] for batch in data.test_dataloader()])
    assert (ids == data.tokenizer.eos_token_id).sum() == len(TEXTS)


@pytest.mark.parametrize("stride", [1, 7, 50])
def test_training_blocks_overlap_by_the_stride(path: str, stride: int) -> None:
    """Each starts so many tokens after the last, and none after the text's end is reached; for testing none overlap."""
    data = LanguageModelling(path, "bytes", separator="", max_length=50, stride=stride, **SAME)
    data.setup("fit")
    stream = data.tokenizer("".join(TEXTS))["input_ids"]
    training = [row["input_ids"] for row in data.train_dataloader().dataset]
    assert training == [stream[place * stride : place * stride + 50] for place in range(len(training))]
    reached = (len(training) - 1) * stride + 50
    assert reached - stride < len(stream) <= reached
    assert [token for row in data.test_dataloader().dataset for token in row["input_ids"]] == stream


def test_a_stride_leaves_no_token_out(path: str, tokenizer: str) -> None:
    """Special tokens take room in a block: the longest stride skips none for them. A short text is one block."""

    def blocks(stride: int | None) -> list[list[int]]:
        data = LanguageModelling(path, tokenizer, masked=True, max_length=12, stride=stride, **SAME)
        return [row["input_ids"] for row in data.train_dataloader().dataset]

    assert len(blocks(None)) > 1
    assert blocks(12) == blocks(None)
    short = LanguageModelling(path, "bytes", separator="", max_length=4096, stride=3, **SAME)
    (only,) = short.train_dataloader().dataset
    assert only["input_ids"] == short.tokenizer("".join(TEXTS))["input_ids"]


def test_masks_are_fixed_for_evaluation_and_drawn_anew_for_training(path: str, tokenizer: str) -> None:
    """Two passes over the test split agree, two over the training split do not; special tokens are never masked."""
    data = LanguageModelling(path, tokenizer, masked=True, mask_probability=0.4, max_length=12, **SAME)

    def masked(loader: Any) -> list[list[int]]:
        torch.manual_seed(0)
        return sorted(row for batch in loader for row in batch["labels"].tolist())

    loader = data.test_dataloader()
    assert masked(loader) == masked(loader)
    training = data.train_dataloader()
    first = sorted(row for batch in training for row in batch["labels"].tolist())
    second = sorted(row for batch in training for row in batch["labels"].tolist())
    assert first != second
    special = torch.tensor(data.tokenizer.all_special_ids)
    for batch in loader:
        known = batch["labels"] != -100
        assert known.any()
        assert not torch.isin(batch["labels"][known], special).any()
        assert (batch["input_ids"][:, 0] == data.tokenizer.cls_token_id).all()


def test_the_share_of_masked_tokens(tmp_path: Path, tokenizer: str) -> None:
    """Of thousands of tokens the share that is asked for is labelled, in training and in testing."""
    path = jsonl(tmp_path / "long.jsonl", [{"text": " ".join(TEXTS)}] * 80)
    data = LanguageModelling(path, tokenizer, masked=True, mask_probability=0.3, max_length=64, **SAME)
    torch.manual_seed(0)
    special = torch.tensor(data.tokenizer.all_special_ids)
    for loader in (data.train_dataloader(), data.test_dataloader()):
        labelled = total = 0
        for batch in loader:
            known = batch["labels"] != -100
            true = torch.where(known, batch["labels"], batch["input_ids"])
            labelled += int(known.sum())
            total += int((~torch.isin(true, special)).sum())
        assert total >= 2000
        assert labelled / total == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / total) ** 0.5)


def test_mistakes(path: str, tmp_path: Path) -> None:
    """A share that is none, and text that is none."""
    with pytest.raises(InputError, match="mask_probability is 1"):
        LanguageModelling(path, "bytes", mask_probability=1.0)
    for stride in (0, 129):
        with pytest.raises(InputError, match=f"stride is {stride}, but 1 to max_length, 128, was expected"):
            LanguageModelling(path, "bytes", stride=stride)
    empty = jsonl(tmp_path / "empty.jsonl", [{"text": ""}])
    with pytest.raises(InputError, match="holds no text"):
        LanguageModelling(empty, "bytes", separator="", **SAME).setup("fit")


def test_blocks_have_room_for_more_than_special_tokens(path: str, tokenizer: str) -> None:
    """Two tokens of four are special; of those of a tokenizer with three, none would be left."""
    data = LanguageModelling(path, tokenizer, masked=True, max_length=4, **SAME)
    data.setup("test")
    loaded: Any = data.tokenizer
    loaded.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] [CLS] $A [SEP]", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    again = LanguageModelling(path, tokenizer, masked=True, max_length=4, **SAME)
    again._tokenizer = loaded
    with pytest.raises(InputError, match="max_length is 4, but the tokenizer puts 3 special tokens around each text"):
        again.setup("test")
