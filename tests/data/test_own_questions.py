"""A file alone becomes questions and answers, for a checkpoint that finds answers in texts."""

from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForQuestionAnswering, LiltConfig, LiltForQuestionAnswering

from fusionlab import checkpoints
from fusionlab.data import OwnData, QuestionAnswering
from fusionlab.data.choosing import Use
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import jsonl


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A checkpoint with fewer positions than questions have tokens, and its tokenizer."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForQuestionAnswering(BertConfig(vocab_size=259, max_position_embeddings=64, **sizes))
    checkpoints.save(model.eval(), tmp_path / "bert")
    byte_tokenizer().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def fitted(path: str, checkpoint: Path, use: Use = "measuring", **options: Any) -> tuple[QuestionAnswering, str]:
    module, told = OwnData(path, **options).fitted(checkpoints.read(checkpoint), use)
    assert isinstance(module, QuestionAnswering)
    return module, told


def test_squad(tmp_path: Path, bert: Path) -> None:
    """Columns of SQuAD's names, no more tokens than the model has positions for."""
    rows = [
        {"id": f"n{i}", "context": f"it is {i}", "question": "q", "answers": {"text": [f"{i}"], "answer_start": [6]}}
        for i in range(10)
    ]
    module, told = fitted(jsonl(tmp_path / "squad.jsonl", rows), bert)
    assert "questions from `question`, contexts from `context`; answers from `answers`" in told
    assert "--data.text_column, --data.pair_column, --data.label_column" in told
    assert (module.max_length, module.start_column) == (62, None)
    (batch,) = module.test_dataloader()
    assert batch["labels"].tolist() == [[7, 7]] * 2


def test_long_texts_and_pages(tmp_path: Path, bert: Path) -> None:
    """A model with more positions reads 384 tokens; of one that reads where words stand on a page no data are known."""
    path = jsonl(tmp_path / "x.jsonl", [{"question": "q", "context": "abc", "answers": "b"}] * 10)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 259}
    for name, model in (
        ("long", BertForQuestionAnswering(BertConfig(hidden_size=8, max_position_embeddings=1024, **sizes))),
        ("page", LiltForQuestionAnswering(LiltConfig(hidden_size=24, channel_shrink_ratio=2, **sizes))),
    ):
        checkpoints.save(model.eval(), tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    assert fitted(path, tmp_path / "long")[0].max_length == 384
    assert fitted(path, tmp_path / "long", max_length=100)[0].max_length == 100
    with pytest.raises(InputError, match="is a LiltForQuestionAnswering, for which no data can be guessed"):
        fitted(path, tmp_path / "page")


def test_plain_answers_and_their_places(tmp_path: Path, bert: Path) -> None:
    """As a CSV file has them; other names are given, and wrong ones refused."""
    lines = ["query,passage,answer,answer_start", *(f"q,a n{i} b n{i},n{i},7" for i in range(10))]
    (tmp_path / "plain.csv").write_text("\n".join(lines), encoding="utf-8")
    module, told = fitted(str(tmp_path / "plain.csv"), bert, label_column="answer")
    assert "answers from `answer`, which begin at `answer_start`" in told
    (batch,) = module.test_dataloader()
    assert batch["labels"].tolist() == [[8, 9]] * 2
    other = jsonl(tmp_path / "x.jsonl", [{"ask": f"q{i}", "story": "abc", "reply": "b"} for i in range(10)])
    module, _ = fitted(other, bert, text_column="ask", label_column="reply")
    assert (module.question_column, module.context_column, module.answer_column) == ("ask", "story", "reply")
    several = [{"question": "q", "context": "abab", "answers": ["b", "a"], "answer_start": [3, 0]}] * 10
    module, _ = fitted(jsonl(tmp_path / "several.jsonl", several), bert)
    assert module.start_column == "answer_start"
    (batch,) = module.test_dataloader()
    assert batch["labels"].tolist() == [[4, 4]] * 2
    with pytest.raises(InputError, match=r"x.jsonl: no columns are called as questions .*expected data.text_column"):
        fitted(other, bert)
    with pytest.raises(InputError, match=r"x.jsonl: no column holds answers .*expected data.label_column"):
        fitted(other, bert, text_column="ask")
    with pytest.raises(InputError, match="has no column 'none'"):
        fitted(other, bert, text_column="ask", label_column="none")


def test_a_test_split_with_hidden_answers_is_passed_over(tmp_path: Path, bert: Path) -> None:
    """As other labels are, whether a row has no answer at all or one without a text."""
    row = {"question": "q", "context": "abc"}
    known = {**row, "answers": {"text": ["b"], "answer_start": [1]}}
    for hidden in (None, {"text": [], "answer_start": []}):
        place = tmp_path / ("none" if hidden is None else "empty")
        place.mkdir()
        for name, answers in (("train", known["answers"]), ("validation", known["answers"]), ("test", hidden)):
            jsonl(place / f"{name}.jsonl", [{**row, "answers": answers}] * 3)
        module, told = fitted(str(place), bert)
        assert "measured on the split `validation`" in told
        assert module.splits.names["test"] == "validation"


def test_answers_are_not_needed_where_texts_are_looked_at(tmp_path: Path, bert: Path) -> None:
    rows = [{"question": f"q{i}", "context": "abc"} for i in range(10)]
    module, told = fitted(jsonl(tmp_path / "x.jsonl", rows), bert, "inputs")
    assert "answers from" not in told
    assert all("labels" not in batch for batch in module.train_dataloader())
