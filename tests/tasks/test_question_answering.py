"""A model learns where answers are, and what it says of them is the answer as a text."""

from pathlib import Path
from typing import Any

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
