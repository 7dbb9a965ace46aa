"""Words and tags: labels at first sub-words, no word lost, types mapped, CoNLL files and tables alike."""

from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionlab.data import NER
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.data.word_encoding import WordEncoder, iob2
from fusionlab.errors import InputError
from tests.tasks.sample import SENTENCES, TAGS, jsonl

SAME: dict[str, Any] = {"train_split": None, "val_split": None, "test_split": "train"}


def rows(sentences: list[tuple[str, str]] = SENTENCES) -> list[dict[str, Any]]:
    return [
        {"tokens": text.split(), "ner_tags": tags.split(), "genre": "abc"[i % 3]}
        for i, (text, tags) in enumerate(sentences)
    ]


def windows(data: NER) -> list[tuple[list[str], list[str]]]:
    """Every sample's words (put together again from sub-words) and tags."""
    data.setup("test")
    found = []
    for sample in data._encoded["test"]:
        words: list[str] = []
        tags: list[str] = []
        for token, label in zip(sample["input_ids"], sample["labels"], strict=True):
            name = data.tokenizer.convert_ids_to_tokens(token)
            if label != -100:
                assert not name.startswith("##"), "a label stands at the first sub-word"
                words.append(name)
                tags.append(TAGS[label])
            elif name not in ("[CLS]", "[SEP]"):
                words[-1] += name.removeprefix("##")
        found.append((words, tags))
    return found


def test_labels_stand_at_first_subwords(tmp_path: Path, tokenizer: str) -> None:
    """Each word has one label, whole or cut into letters."""
    data = NER(jsonl(tmp_path / "x.jsonl", rows()), tokenizer, **SAME)
    assert windows(data) == [(text.split(), tags.split()) for text, tags in SENTENCES]
    assert any("Washington" in words for words, _ in windows(data)), "a word that the tokenizer cuts"
    assert data.class_names == TAGS


@pytest.mark.parametrize("max_length", [12, 16, 20])
def test_long_sentences_lose_no_word_and_cut_no_entity(tmp_path: Path, tokenizer: str, max_length: int) -> None:
    """All windows together are the sentence; each fits; entities that fit stay whole."""
    text, tags = (" ".join(part) for part in zip(*SENTENCES[1:], strict=True))
    data = NER(jsonl(tmp_path / "x.jsonl", rows([(text, tags)])), tokenizer, max_length=max_length, **SAME)
    found = windows(data)
    assert len(found) > 1
    assert [word for words, _ in found for word in words] == text.split()
    assert [tag for _, window in found for tag in window] == tags.split()
    assert not any(window[0].startswith("I-") for _, window in found)
    assert max(len(sample["input_ids"]) for sample in data._encoded["test"]) <= max_length


def test_an_entity_longer_than_a_window_counts_as_its_pieces(tmp_path: Path, tokenizer: str) -> None:
    """Each begins anew, as what only goes on is no entity to strict scores."""
    rows_ = [{"tokens": ["at"] * 6, "ner_tags": ["B-LOC", *["I-LOC"] * 5]}]
    data = NER(jsonl(tmp_path / "x.jsonl", rows_), tokenizer, max_length=6, **SAME)
    found = [tags for _, tags in windows(data)]
    assert len(found) > 1
    assert all(tags[0] == "B-LOC" and set(tags[1:]) <= {"I-LOC"} for tags in found)


def test_long_sentences_may_be_refused(tmp_path: Path, tokenizer: str) -> None:
    """Says how long it is and how much room there is."""
    path = jsonl(tmp_path / "x.jsonl", rows())
    with pytest.raises(InputError, match=r"has \d+ sub-words, but data.max_length leaves room for 6"):
        NER(path, tokenizer, max_length=8, long_sentences="refuse", **SAME).setup("test")


def test_a_word_longer_than_a_window_keeps_its_label(tmp_path: Path, tokenizer: str) -> None:
    """Its end is cut, its label is not."""
    data = NER(jsonl(tmp_path / "x.jsonl", rows([("at Washington", "O B-LOC")])), tokenizer, max_length=6, **SAME)
    data.setup("test")
    labels = [label for row in data._encoded["test"]["labels"] for label in row if label != -100]
    assert labels == [0, TAGS.index("B-LOC")]


def test_a_word_without_tokens_is_unknown_not_lost(tmp_path: Path) -> None:
    """An empty word would leave no token to label."""
    path = jsonl(tmp_path / "x.jsonl", [{"tokens": ["a", "", "b"], "ner_tags": ["O", "B-PER", "O"]}])
    data = NER(path, "bytes", **SAME)
    data.setup("test")
    assert [label for label in data._encoded["test"]["labels"][0] if label != -100] == [0, 1, 0]


def test_genre_and_types(tmp_path: Path, tokenizer: str) -> None:
    """Only the genre that is asked for; other names become ours, other types O."""
    named = [(text, tags.replace("PER", "person").replace("LOC", "misc")) for text, tags in SENTENCES]
    path = jsonl(tmp_path / "x.jsonl", rows(named))
    data = NER(path, tokenizer, genre="a", mapping={"person": "PER"}, **SAME)
    (first, second) = windows(data)
    assert first[1] == ["B-PER", "I-PER", "O", "O", "O", "O"]
    assert second[1] == ["B-PER", "O", "B-PER", "O", "O", "O", "O"]
    assert data.name == "x_a"
    with pytest.raises(InputError, match="no test sentence of genre 'z', only a, b, c"):
        NER(path, tokenizer, genre="z", **SAME).setup("test")


def test_conll_files_and_tables_are_read_alike(tmp_path: Path, tokenizer: str) -> None:
    """Columns by number, with a document line and more columns between; a folder holds one file for each split."""
    lines = ["-DOCSTART- -X- O O", ""]
    for text, tags in SENTENCES:
        lines += [f"{word} NN {tag}" for word, tag in zip(text.split(), tags.split(), strict=True)] + [""]
    (tmp_path / "onto.test.bc.ner").write_text("\n".join(lines))
    expected = [(text.split(), tags.split()) for text, tags in SENTENCES]
    folder = NER(
        str(tmp_path), tokenizer, train_split=None, val_split=None, test_split="onto.test.bc.ner", token_column=0,
        tag_column=-1,
    )  # fmt: skip
    assert windows(folder) == expected
    assert windows(NER(str(tmp_path / "onto.test.bc.ner"), tokenizer, test_on_all=True)) == expected
    for split in ("train", "validation", "test"):
        (tmp_path / "named").mkdir(exist_ok=True)
        (tmp_path / "named" / f"{split}.conll").write_text("\n".join(lines))
    assert windows(NER(str(tmp_path / "named"), tokenizer, token_column=0, tag_column=-1)) == expected
    with pytest.raises(InputError, match="no file 'gone' for the train split"):
        NER(str(tmp_path), tokenizer, train_split="gone", test_split="onto.test.bc.ner").setup("fit")


def test_numbers_with_names(tmp_path: Path, tokenizer: str) -> None:
    """Hub sets hold numbers and name them."""
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(datasets.ClassLabel(names=TAGS))}
    )
    numbered = {
        "tokens": [text.split() for text, _ in SENTENCES],
        "ner_tags": [[TAGS.index(tag) for tag in tags.split()] for _, tags in SENTENCES],
    }
    datasets.Dataset.from_dict(numbered, features=features).to_parquet(str(tmp_path / "x.parquet"))
    data = NER(str(tmp_path / "x.parquet"), tokenizer, **SAME)
    assert windows(data) == [(text.split(), tags.split()) for text, tags in SENTENCES]


def test_numbers_without_names(tmp_path: Path, tokenizer: str) -> None:
    """Nobody knows which tag a bare number is."""
    path = jsonl(tmp_path / "x.jsonl", [{"tokens": ["a", "b"], "ner_tags": [0, 3]}])
    with pytest.raises(InputError, match="holds the tag 0, but O, B-TYPE or I-TYPE was expected"):
        NER(path, tokenizer, **SAME).setup("test")


@given(st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-X", "I-X"]), max_size=8))
def test_tags_become_iob2(tags: list[str]) -> None:
    """Afterwards every I- continues an entity of its type, and entities that were well-formed stay as they are."""
    found = iob2(tags, {}, TAGS)
    for before, tag in zip(["O", *found], found, strict=False):
        assert tag[:2] != "I-" or before[2:] == tag[2:]
    assert [tag != "O" for tag in found] == [tag in TAGS[1:] for tag in tags]
    assert iob2(found, {}, TAGS) == found
    with pytest.raises(InputError, match="'PER'"):
        iob2(["PER"], {}, TAGS)


def test_mistakes(tmp_path: Path, tokenizer: str) -> None:
    """Types that nothing leads to, and words without tags."""
    with pytest.raises(InputError, match=r"mapping leads to 'X'"):
        NER("any", tokenizer, mapping={"a": "X"})
    path = jsonl(tmp_path / "x.jsonl", [{"tokens": ["a", "b"], "ner_tags": ["O"]}])
    with pytest.raises(InputError, match="2 words has 1 tags"):
        NER(path, tokenizer, **SAME).setup("test")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": None, "ner_tags": ["O"]}, "'tokens' holds None; expected lists of words"),
        ({"tokens": ["a", None], "ner_tags": ["O", "O"]}, r"'tokens' holds \['a', None\]; expected lists of words"),
        ({"tokens": ["a"], "ner_tags": None}, "'ner_tags' holds None; expected lists of tags"),
    ],
)
def test_rows_that_are_no_sentences(tmp_path: Path, tokenizer: str, row: dict[str, Any], message: str) -> None:
    """Beside a row that is one, so that the columns are of lists of texts."""
    path = jsonl(tmp_path / "x.jsonl", [{"tokens": ["a", "b"], "ner_tags": ["O", "O"]}, row])
    with pytest.raises(InputError, match=message):
        NER(path, tokenizer, **SAME).setup("test")


@pytest.mark.parametrize("number", [-1, 5])
def test_numbers_beyond_the_names(number: int) -> None:
    """Tags that a damaged table numbers otherwise than it names them: -1 is not the last of them."""
    tokens = byte_tokenizer()
    encoder = WordEncoder(tokens, 16, "x", "tokens", "ner_tags", tuple(TAGS), (), tuple(TAGS[:5]), "split")
    with pytest.raises(InputError, match=f"holds the tag {number}; expected numbers from 0 to 4"):
        encoder({"tokens": [["a"]], "ner_tags": [[number]]})


def test_tags_that_the_labels_lack(tmp_path: Path, tokenizer: str) -> None:
    """Counted in IOB2 and under their new names; an I- that begins an entity is a B-."""
    path = jsonl(tmp_path / "x.jsonl", [{"tokens": ["a", "b", "c"], "ner_tags": ["I-ORG", "I-ORG", "B-person"]}])
    data = NER(path, tokenizer, tags=["O", "B-PER", "I-PER"], mapping={"person": "PER"}, **SAME)
    assert data.other_tags() == {"B-ORG": 1, "I-ORG": 1}
    assert NER(path, tokenizer, tags=["O", "B-ORG", "I-ORG"], **SAME).other_tags() == {"B-person": 1}
