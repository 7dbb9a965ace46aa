"""A model learns where answers are, and what it says of them is the answer as a text."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from fusionlab import checkpoints
from fusionlab.data import QuestionAnswering as Questions
from fusionlab.tasks import QuestionAnswering
from tests.tasks.sample import FEELINGS, bert, fitted, jsonl


def test_answers(tmp_path: Path, tokenizer: str) -> None:
    """The first or the last word of each sentence, or none: by the question."""
    rows: list[dict[str, Any]] = []
    for text, _ in FEELINGS[:4]:
        words = text.split()
        for question, answer in (("the first", words[0]), ("at the end", words[-2]), ("never", None)):
            answers = {"text": [answer] if answer else [], "answer_start": [text.index(answer)] if answer else []}
            rows.append({"question": question, "context": text, "answers": answers})
    same: Any = {"test_split": "train", "batch_size": 12, "eval_batch_size": 5}
    data = Questions(jsonl(tmp_path / "x.jsonl", rows), tokenizer, max_length=64, **same)
    task = QuestionAnswering(bert(), learning_rate=1e-2)
    found = fitted(task, data, tmp_path, steps=150)
    assert found["test/exact_match"] == found["test/f1"] == 1
    batches = [task.eval().predict_step(batch, 0) for batch in data.predict_dataloader()]
    header, *predicted = task.prediction_rows(batches)
    assert header == ["sample", "predicted", "probability"]
    wanted = [(row["answers"]["text"] or [""])[0] for row in rows]
    assert [row[1].replace(" ##", "") for row in predicted] == wanted
    assert all(0.25 < float(row[2]) <= 1 for row in predicted)
    checkpoints.save(task.model, tmp_path / "saved")
    assert type(checkpoints.load(tmp_path / "saved")).__name__ == "BertForQuestionAnswering"


def test_a_head_of_another_task_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever number of labels it has; one of this task is kept."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    checkpoints.save(BertForSequenceClassification(BertConfig(vocab_size=9, num_labels=3, **sizes)), tmp_path / "three")
    other: Any = QuestionAnswering(str(tmp_path / "three")).model
    assert other.qa_outputs.out_features == 2
    assert "qa_outputs" in capsys.readouterr().err
    checkpoints.save(other, tmp_path / "two")
    kept: Any = QuestionAnswering(str(tmp_path / "two")).model
    assert torch.equal(kept.qa_outputs.weight, other.qa_outputs.weight)


def test_no_answer_is_written_as_nothing(tmp_path: Path) -> None:
    """By tokenizers without a classifying token too, where the first token stands for it."""
    rows = [{"question": "what", "context": "a b c", "answers": answer} for answer in (None, "b")]
    data = Questions(jsonl(tmp_path / "x.jsonl", rows), "bytes", test_split="train", batch_size=2)
    task = QuestionAnswering(bert(vocab_size=259), learning_rate=1e-2)
    fitted(task, data, tmp_path, steps=1)
    (batch,) = data.predict_dataloader()
    wanted = batch["labels"] - torch.tensor([[0, 0], [1, 0]])  # with the space before the answer
    with patch.object(task.model, "forward", lambda **_: given(wanted, batch["input_ids"].shape[1])):
        assert task.predict_step(batch, 0)[0] == ["", "b"]


def given(labels: Tensor, tokens: int) -> QuestionAnsweringModelOutput:
    """What a model gives that is sure of these answers."""
    begins, ends = (99.0 * one_hot(end, tokens).float() for end in labels.unbind(1))
    return QuestionAnsweringModelOutput(start_logits=begins, end_logits=ends)
