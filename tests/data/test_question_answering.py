"""Questions and answers: the labelled tokens are those of the answer, whichever way a table says where it stands."""

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fusionlab.data import QuestionAnswering
from fusionlab.data.question_answering import QuestionEncoder
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.tasks.sample import FEELINGS, jsonl, toy_tokenizer

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
    placed = [{**row, "at": place} for place in (0, 3, 10, 9, 11, 40, -10)]
    found = read(tmp_path, placed, answer_column="answer", start_column="at")[1]["labels"] - 1
    assert found[:, 0].tolist() == [3, 3, 10, 10, 10, 10, 3]
    listed = [{**row, "answer": ["yes", "no"], "at": [place, 0]} for place in (3, 10)]
    found = read(tmp_path, listed, answer_column="answer", start_column="at")[1]["labels"] - 1
    assert found[:, 0].tolist() == [3, 10]
    years = [{"question": "q", "context": "in 1990", "answer": 1990}]
    assert read(tmp_path, years, answer_column="answer")[0] == ["1990"]


def test_no_answer(tmp_path: Path, tokenizer: str) -> None:
    """It is twice the classifying token, the first where the tokenizer has none; an empty cell is none."""
    rows = [squad(CONTEXTS[0]), {**squad(CONTEXTS[0]), "answers": None}, squad(CONTEXTS[0], "exam")]
    last = toy_tokenizer(tmp_path / "last", pair="$A [SEP] $B:1 [CLS]:1")
    places = {
        "bytes": 0,
        tokenizer: 0,
        last: len(AutoTokenizer.from_pretrained(last)("what ?", CONTEXTS[0])["input_ids"]) - 1,
    }
    for source, place in places.items():
        labels = read(tmp_path, rows, source)[1]["labels"]
        assert labels[:2].tolist() == [[place] * 2] * 2
        assert place not in labels[2]
    (tmp_path / "x.csv").write_text("question,context,answers\nq,c,c\nq,c,\nq,c, \n", encoding="utf-8")
    (batch,) = QuestionAnswering(str(tmp_path / "x.csv"), "bytes", **SAME).test_dataloader()
    assert batch["labels"].tolist() == [[1, 1], [0, 0], [0, 0]]
    data = QuestionAnswering(jsonl(tmp_path / "x.jsonl", rows), "bytes", answer_column=None, **SAME)
    (batch,) = data.test_dataloader()
    assert "labels" not in batch
    assert data.texts("test") == [f"what ? {CONTEXTS[0]}"] * 3
    assert data.texts("val") == []


def test_an_answer_that_is_cut_off_is_unknown(tmp_path: Path) -> None:
    """In part, too, at either end: half an answer would be a wrong one."""
    rows = [squad("abcdefgh", answer) for answer in ("ab", "ef", "fg", "gh")]
    found, batch = read(tmp_path, rows, max_length=2 * len("what ?"))
    assert found == ["ab", "ef", None, None]
    assert batch["input_ids"].shape[1] == 2 * len("what ?")
    left = toy_tokenizer(tmp_path / "left", truncation_side="left")
    assert read(tmp_path, [squad("I lost my dog", "I lost")], left, max_length=8)[0] == [None]


def test_labels_count_from_the_beginning(tmp_path: Path) -> None:
    """Rows are padded behind their end, by tokenizers that pad in front too."""
    left = toy_tokenizer(tmp_path / "left", padding_side="left")
    rows = [squad("I lost my dog and found him again .", "dog"), squad("I lost .", "lost")]
    found, batch = read(tmp_path, rows, left)
    assert found == ["dog", "lost"]
    assert batch["attention_mask"][1].tolist() == sorted(batch["attention_mask"][1].tolist(), reverse=True)


def test_letters_without_tokens_cut_nothing_off(tmp_path: Path) -> None:
    """As spaces of no width, which BERT's tokenizer leaves out."""
    core = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[UNK]").save_pretrained(tmp_path / "clean")
    rows = [{"question": "a", "context": "a \u200bb\u200b c", "answers": answer} for answer in ("\u200bb\u200b", "c")]
    assert read(tmp_path, rows, str(tmp_path / "clean"))[0] == ["b", "c"]


@pytest.mark.parametrize("trim", [True, False])
def test_spaces_around_answers(tmp_path: Path, trim: bool) -> None:
    """They belong to no answer, though tokens of bytes may hold the one before a word."""
    core = Tokenizer(models.BPE(unk_token=None))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(CONTEXTS * 4, trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    core.post_processor = processors.ByteLevel(trim_offsets=trim)
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="!").save_pretrained(tmp_path / "bpe")
    text = CONTEXTS[0]
    rows = [squad(text, answer) for answer in ("passed", " passed", "passed ", " passed the ", "When", ".")]
    found, _ = read(tmp_path, rows, str(tmp_path / "bpe"))
    assert [str(one).strip() for one in found] == ["passed", "passed", "passed", "passed the", "When", "."]


def test_a_long_question_leaves_room_for_its_context(tmp_path: Path, tokenizer: str) -> None:
    """It gets half of the tokens but special ones; a shorter one all that it has."""
    rows = [{"question": "x" * 30, "context": "I lost", "answers": "lost"}]
    assert read(tmp_path, rows, max_length=20) == (["lost"], ANY)
    found, batch = read(tmp_path, rows, tokenizer, max_length=20)
    assert (found, batch["input_ids"].shape) == (["lost"], (1, 13))
    assert read(tmp_path, [{**rows[0], "question": "x" * 7}], tokenizer, max_length=20)[1]["input_ids"].shape == (1, 12)
    shortest = [{"question": "I lost", "context": "my dog", "answers": "my"}]
    assert read(tmp_path, shortest, tokenizer, max_length=5)[0] == ["my"]
    with pytest.raises(InputError, match=r"data.max_length is 4, but a question and its context need at least 5"):
        read(tmp_path, rows, tokenizer, max_length=4)


def test_what_is_no_answer_is_refused(tmp_path: Path) -> None:
    """A text that does not stand there, a number in place of a text."""
    rows = [{"question": "q", "context": "some words", "answers": answer} for answer in ("other",)]
    with pytest.raises(InputError, match=r"x.jsonl: the answer 'other' does not stand in its context \('some words'"):
        read(tmp_path, rows)
    with pytest.raises(InputError, match=r"column 'answers' holds '7.5', but an answer was expected: a text, or"):
        read(tmp_path, [{"question": "q", "context": "c", "answers": 7.5}])
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
    if not answer.strip():
        assert (first, last) == (0, 0)
        return
    assert encoder.tokenizer.decode(found["input_ids"][0][first : last + 1]) == answer.strip()
    assert first >= len("é?".encode())
