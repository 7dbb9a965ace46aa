"""Questions and answers: the labelled tokens are those of the answer, whichever way a table says where it stands."""

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionlab.data import QuestionAnswering
from fusionlab.data.question_answering import QuestionEncoder
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import FEELINGS, jsonl

CONTEXTS = [text for text, _ in FEELINGS]
SAME: dict[str, Any] = {"test_split": "train", "eval_batch_size": 64}
Row = dict[str, Any]


def squad(context: str, *answers: str) -> Row:
    """A row as SQuAD has it."""
    starts = [context.index(answer) for answer in answers]
    return {"question": "what ?", "context": context, "answers": {"text": list(answers), "answer_start": starts}}


def joined(text: str) -> str:
    """Words whose pieces a toy tokenizer leaves apart."""
    return text.replace(" ##", "")


def read(tmp_path: Path, rows: list[Row], tokenizer: str = "bytes", **options: Any) -> tuple[list[str | None], Any]:
    """The labelled tokens of each row as a text, None where the answer is unknown; and the batch."""
    data = QuestionAnswering(jsonl(tmp_path / "x.jsonl", rows), tokenizer, **SAME, **options)
    (batch,) = data.test_dataloader()
    assert batch["labels"].shape == (len(rows), 2)
    spans = zip(batch["input_ids"], batch["labels"].tolist(), strict=True)
    return [None if a < 0 else joined(data.tokenizer.decode(row[a : b + 1])) for row, (a, b) in spans], batch


def test_answers_are_found_in_their_contexts(tmp_path: Path, tokenizer: str) -> None:
    """As SQuAD has them, in words that are cut into letters too; the first of several counts."""
    wanted = [" ".join(text.split()[1:3]) for text in CONTEXTS]
    rows = [squad(text, answer, text.split()[0]) for text, answer in zip(CONTEXTS, wanted, strict=True)]
    assert read(tmp_path, rows)[0] == wanted
    assert read(tmp_path, rows, tokenizer)[0] == wanted
    listed = [{**row, "answers": [{"text": row["answers"]["text"][0], "answer_start": 0}]} for row in rows]
    assert read(tmp_path, listed)[0] == wanted, "a place where it does not stand is not believed"


def test_a_text_alone_or_with_its_place(tmp_path: Path) -> None:
    """Of several places the first, unless a column says which, be it counted a little differently."""
    row = {"question": "q", "context": "no yes no yes", "answer": "yes"}
    alone = read(tmp_path, [row], answer_column="answer")[1]["labels"][0] - 1
    assert alone.tolist() == [3, 5]
    placed = [{**row, "at": place} for place in (0, 3, 10, 9, 40)]
    found = read(tmp_path, placed, answer_column="answer", start_column="at")[1]["labels"] - 1
    assert found[:, 0].tolist() == [3, 3, 10, 10, 10]


def test_no_answer_and_an_unknown_one(tmp_path: Path, tokenizer: str) -> None:
    """No answer is twice the classifying token, the first where the tokenizer has none; unknown ones are -100."""
    rows = [squad(CONTEXTS[0]), {**squad(CONTEXTS[0]), "answers": None}, squad(CONTEXTS[0], "exam")]
    for source in ("bytes", tokenizer):
        labels = read(tmp_path, rows, source)[1]["labels"].tolist()
        assert labels[:2] == [[0, 0], [-100, -100]]
    empty = [{"question": "q", "context": "c", "answers": text} for text in ("", "c")]
    assert read(tmp_path, empty)[1]["labels"].tolist() == [[0, 0], [1, 1]]
    data = QuestionAnswering(jsonl(tmp_path / "x.jsonl", rows), "bytes", answer_column=None, **SAME)
    (batch,) = data.test_dataloader()
    assert "labels" not in batch
    assert data.texts("test") == [f"what ? {CONTEXTS[0]}"] * 3
    assert data.texts("val") == []


def test_an_answer_that_is_cut_off_is_unknown(tmp_path: Path) -> None:
    """In part, too: half an answer would be a wrong one."""
    rows = [squad("abcdefgh", answer) for answer in ("ab", "ef", "fg", "gh")]
    found, batch = read(tmp_path, rows, max_length=2 * len("what ?"))
    assert found == ["ab", "ef", None, None]
    assert batch["input_ids"].shape[1] == 2 * len("what ?")


def test_a_long_question_leaves_room_for_its_context(tmp_path: Path, tokenizer: str) -> None:
    """It gets half of the tokens; a shorter one all that it has."""
    rows = [{"question": "x" * 30, "context": "I lost", "answers": "lost"}]
    assert read(tmp_path, rows, max_length=20) == (["lost"], ANY)
    found, batch = read(tmp_path, rows, tokenizer, max_length=20)
    assert (found, batch["input_ids"].shape) == (["lost"], (1, 15))
    assert read(tmp_path, [{**rows[0], "question": "x" * 9}], max_length=20)[1]["input_ids"].shape == (1, 15)


def test_what_is_no_answer_is_refused(tmp_path: Path) -> None:
    """A text that does not stand there, a number in place of a text."""
    rows = [{"question": "q", "context": "some words", "answers": answer} for answer in ("other",)]
    with pytest.raises(InputError, match=r"x.jsonl: the answer 'other' does not stand in its context \('some words'"):
        read(tmp_path, rows)
    with pytest.raises(InputError, match=r"column 'answers' holds '7', but an answer was expected: a text, or"):
        read(tmp_path, [{"question": "q", "context": "c", "answers": 7}])
    with pytest.raises(InputError, match="has no column 'question'"):
        read(tmp_path, [{"query": "q", "context": "c", "answers": "c"}])


@given(st.text("ab é", min_size=1, max_size=12), st.data())
def test_any_part_of_any_context(context: str, data: st.DataObject) -> None:
    """The tokens of bytes that are labelled decode to the answer itself, with letters of several bytes too."""
    start = data.draw(st.integers(0, len(context) - 1))
    answer = context[start : data.draw(st.integers(start + 1, len(context)))]
    encoder = QuestionEncoder(byte_tokenizer(), 64, "x", "question", "context", "answers", None)
    answers = {"text": answer, "answer_start": start}
    found = encoder({"question": ["é?"], "context": [context], "answers": [answers]})
    first, last = found["labels"][0]
    assert encoder.tokenizer.decode(found["input_ids"][0][first : last + 1]) == answer
    assert first >= len("é?".encode())
