"""Texts and labels from tables: splits, truncation, padding, caching, overlap; every mistake is one sentence."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from fusionlab.data import GLUE, TextClassification, overlap
from fusionlab.data.encoding import TextEncoder
from fusionlab.errors import InputError
from tests.tasks.sample import FEELINGS, jsonl

TEXTS = [text for text, _ in FEELINGS]


def table(folder: Path, rows: int = 20, split: list[str | None] | None = None) -> str:
    columns: dict[str, Any] = {
        "text": [f"{TEXTS[row % 8]} {row}" for row in range(rows)], "label": [row % 3 for row in range(rows)],
    }  # fmt: skip
    if split is not None:
        columns["split"] = split
    path = folder / "some.data.parquet"
    datasets.Dataset.from_dict(columns).to_parquet(str(path))
    return str(path)


def test_held_out_rows_are_always_the_same_and_disjoint(tmp_path: Path, tokenizer: str) -> None:
    """The test rows do not depend on how many are held out for validation."""
    path = table(tmp_path)
    options: dict[str, Any] = {"test_split": None, "test_size": 5}
    first = TextClassification(path, tokenizer, val_size=0.2, **options)
    second = TextClassification(path, tokenizer, val_size=6, **options)
    assert [len(first.texts(split)) for split in ("train", "val", "test")] == [12, 3, 5]
    assert [len(second.texts(split)) for split in ("train", "val", "test")] == [9, 6, 5]
    assert first.texts("test") == second.texts("test")
    everything = [text for split in ("train", "val", "test") for text in first.texts(split)]
    assert len(set(everything)) == 20
    assert first.name == "some"


def test_a_split_column_that_says_nothing_is_one_training_split(tmp_path: Path, tokenizer: str) -> None:
    """Sets without splits and with a column for them can be read alike."""
    path = table(tmp_path, 10, [None] * 10)
    data = TextClassification(path, tokenizer, split_column="split", test_size=2)
    assert [len(data.texts(split)) for split in ("train", "val", "test")] == [8, 0, 2]
    named = table(tmp_path, 10, ["train"] * 6 + ["test"] * 4)
    data = TextClassification(named, tokenizer, split_column="split", test_size=2)
    assert [len(data.texts(split)) for split in ("train", "val", "test")] == [6, 0, 4]
    everything = TextClassification(named, tokenizer, split_column="split", test_on_all=True)
    assert [len(everything.texts(split)) for split in ("train", "val", "test")] == [0, 0, 10]
    assert everything.train_dataloader() == []
    assert len(TextClassification(named, tokenizer, split_column="split", limit=3).texts("train")) == 3


def test_batches_are_truncated_and_padded_to_their_longest(tmp_path: Path, tokenizer: str) -> None:
    """Special tokens stay when a text is cut; padding is masked."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": "at it", "label": 1}, {"text": "night " * 50, "label": 0}])
    data = TextClassification(path, tokenizer, train_split=None, test_split="train", max_length=8, labels=["a", "b"])
    (batch,) = list(data.test_dataloader())
    cls, sep, pad = (data.tokenizer.convert_tokens_to_ids(name) for name in ("[CLS]", "[SEP]", "[PAD]"))
    assert batch["input_ids"].shape == (2, 8)
    assert batch["input_ids"][:, 0].tolist() == [cls, cls]
    assert batch["input_ids"][1, -1] == sep
    assert ((batch["input_ids"] == pad) == (batch["attention_mask"] == 0)).all()
    assert batch["labels"].tolist() == [1, 0]


def test_names_in_another_order_than_the_columns_are_told_apart(tmp_path: Path, tokenizer: str) -> None:
    """A column that names its own classes has their numbers, whatever order the model has."""
    feature = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    path = tmp_path / "x.parquet"
    datasets.Dataset.from_dict({"text": ["bad", "good"], "label": [0, 1]}, feature).to_parquet(str(path))
    for labels, expected in ((["neg", "pos"], [0, 1]), (["pos", "neg"], [1, 0]), (["a", "b"], [0, 1])):
        data = TextClassification(str(path), tokenizer, train_split=None, test_split="train", labels=labels)
        (batch,) = data.test_dataloader()
        assert batch["labels"].tolist() == expected


def test_training_order_follows_the_seed_and_lengths_may_be_grouped(tmp_path: Path, tokenizer: str) -> None:
    """All rows once, in one order for one seed; grouped batches need less padding."""
    rows = [{"text": "it " * (1 + row % 10), "label": 0} for row in range(40)]
    path = jsonl(tmp_path / "x.jsonl", rows)
    sizes = {}
    for grouped in (False, True):
        orders = []
        for _ in range(2):
            torch.manual_seed(3)
            options: dict[str, Any] = {"group_by_length": grouped, "batch_size": 4, "test_split": None}
            batches = list(TextClassification(path, tokenizer, **options).train_dataloader())
            orders.append([batch["input_ids"].tolist() for batch in batches])
            assert sum(len(batch["labels"]) for batch in batches) == 40
        assert orders[0] == orders[1]
        sizes[grouped] = sum(batch["input_ids"].numel() for batch in batches)
    assert sizes[True] < sizes[False]


def test_tokenising_is_cached(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is tokenised; another length, tokenizer or file is."""
    calls = []
    original = TextEncoder.__call__

    def counted(self: TextEncoder, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        calls.append(len(rows["text"]))
        return original(self, rows)

    monkeypatch.setattr(TextEncoder, "__call__", counted)
    path = table(tmp_path)

    def run(tokenizer: str = tokenizer, max_length: int = 16) -> list[list[int]]:
        data = TextClassification(path, tokenizer, test_split=None, max_length=max_length)
        data.setup("fit")
        return list(data._encoded["train"]["input_ids"][:])

    first = run()
    count = len(calls)
    assert count > 0
    assert run() == first
    assert len(calls) == count
    run(max_length=8)
    assert len(calls) > count
    count = len(calls)
    run(tokenizer="bytes")
    assert len(calls) > count


def test_names_of_labels(tmp_path: Path, tokenizer: str) -> None:
    """Names given are matched by name or number; without any, numbers are the names."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": "a", "label": "yes"}, {"text": "b", "label": "no"}])
    data = TextClassification(path, tokenizer, labels=["no", "yes"], test_split=None)
    assert data.label_counts().tolist() == [1, 1]
    assert sorted(next(iter(data.train_dataloader()))["labels"].tolist()) == [0, 1]
    assert TextClassification(table(tmp_path), tokenizer, test_split=None).class_names == ["0", "1", "2"]


@pytest.mark.parametrize("values", [["no", "yes"], [0, 1]])
def test_a_label_that_nobody_agreed_on_is_unknown(tmp_path: Path, tokenizer: str, values: list[Any]) -> None:
    """As SNLI has it: -1 among numbers."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": -1}])
    options: dict[str, Any] = {"label_values": values} if values == [0, 1] else {}
    data = TextClassification(path, tokenizer, labels=["no", "yes"], train_split=None, test_split="train", **options)
    (batch,) = list(data.test_dataloader())
    assert batch["labels"].tolist() == [1, -100]


def test_several_labels_of_which_some_are_not_annotated(tmp_path: Path, tokenizer: str) -> None:
    """-100 for what the data does not annotate, never 0."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": "a", "label": ["x"]}, {"text": "b", "label": []}])
    data = TextClassification(
        path, tokenizer, task="multilabel", labels=["x", "y", "z"], annotated=["x", "z"], train_split=None,
        test_split="train",
    )  # fmt: skip
    (batch,) = list(data.test_dataloader())
    assert batch["labels"].tolist() == [[1, -100, 0], [0, -100, 0]]


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"label": 2}, {"labels": ["a", "b"]}, "holds 2, but a label from 0 to 1 or one of a, b"),
        ({"label": "c"}, {"labels": ["a", "b"]}, "holds 'c'"),
        ({"label": "c"}, {}, r"expected data\.labels"),
        ({"label": "c"}, {"task": "regression"}, "holds 'c', but a number"),
        ({"label": 1}, {"task": "multilabel", "labels": ["a"]}, "holds 1, but a list"),
        ({"label": ["A"]}, {"task": "multilabel", "labels": ["a", "b"]}, "holds 'A', but some of a, b was expected"),
        ({"text": ["a", "b"], "label": 0}, {}, "column 'text' of the data holds .*, but a text was expected"),
        ({"text": 1.5, "label": 0}, {}, "column 'text' of the data holds '1.5', but a text"),
        ({"label": {"a": 1}}, {}, "does not hold class numbers"),
        ({"label": [{"a": 1}]}, {"task": "multilabel"}, "does not hold class numbers"),
        ({"label": 100_000}, {}, "holds the class 100000; expected numbers below 100,000, or names"),
        ({"label": 0}, {"text_column": "words"}, "no column 'words'; it has"),
        ({"label": 0}, {"split_column": "part"}, "no column 'part'"),
        ({"label": 0}, {"val_size": 1.5}, r"val_size is 1\.5"),
        ({"label": 0}, {"val_size": float("nan")}, "val_size is nan"),
        ({"label": 0}, {"test_size": float("nan")}, "test_size is nan"),
        ({"label": 0}, {"max_length": 2**40}, "max_length is 1099511627776; expected at most 2,147,483,647"),
        (
            {"label": 0, "part": ["train"]},
            {"split_column": "part"},
            r"'part' holds \['train'\]; expected the name of a",
        ),
        (
            {"label": 0},
            {"val_size": 1},
            r"x\.jsonl: data\.val_size is 1, but the training split has only 1 row, .* \(data\.val_split\)",
        ),
        ({"label": 0}, {"batch_size": 0}, "batch_size is 0"),
        ({"label": 0}, {"task": "nope"}, "task is 'nope'"),
        ({"label": 0}, {"annotated": ["a"]}, "annotated"),
        ({"label": 0}, {"limit": 0}, "limit is 0"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, tokenizer: str, row: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    """The column, the value and what was expected."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": "a", **row}])
    with pytest.raises(InputError, match=message) as caught:
        TextClassification(path, tokenizer, **{"test_split": None, **options}).setup("fit")
    assert "\n" not in str(caught.value)


def test_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    """Names the folder."""
    path = table(tmp_path)
    for wrong in (str(tmp_path), str(tmp_path / "nowhere")):
        with pytest.raises(InputError, match=str(tmp_path)):
            TextClassification(path, wrong, test_split=None).setup("fit")


def test_a_tokenizer_that_fails_when_it_is_used(tmp_path: Path) -> None:
    """A vocabulary without the token for unknown words is noticed at the first unknown word only."""
    core = Tokenizer(WordPiece({"a": 0, "[PAD]": 1}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]").save_pretrained(tmp_path / "damaged")
    with pytest.raises(InputError, match=r"damaged cannot be used \(.*UNK.*\); expected another"):
        TextClassification(table(tmp_path), str(tmp_path / "damaged"), test_split=None).setup("fit")


@pytest.mark.parametrize("split_column", [None, "split"])
def test_columns_that_nobody_needs_are_left_out(tmp_path: Path, tokenizer: str, split_column: str | None) -> None:
    """A table may have thousands; a missing one is told with those that there are."""
    row = {"text": "a", "label": 0, "split": "train", **{f"x{index}": index for index in range(30)}}
    path = jsonl(tmp_path / "wide.jsonl", [row, row])
    options: dict[str, Any] = {"test_split": None, "split_column": split_column}
    data = TextClassification(path, tokenizer, **options)
    assert set(data.rows["train"].column_names) == {"text", "label"} | ({split_column} - {None})
    with pytest.raises(InputError, match="no column 'words'; it has text, label, split, x0, x1"):
        TextClassification(path, tokenizer, test_split=None, split_column=split_column, text_column="words").setup(
            "fit"
        )


@pytest.mark.parametrize(
    ("name", "columns", "options", "labels"),
    [
        ("cola", {"sentence": ["it is", "is it so it", "so"], "label": [1, 0, 1]}, {}, [1, 0, 1]),
        (
            "stsb",
            {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "score": [0.0, 2.5, 5.0]},
            {"label_column": "score"},
            [0.0, 2.5, 5.0],
        ),
    ],
)
def test_glue_from_a_local_file(
    tmp_path: Path, tokenizer: str, name: str, columns: dict[str, list[Any]], options: dict[str, Any], labels: list[Any]
) -> None:
    """Columns, labels and metric follow from the task's name."""
    path = tmp_path / "x.parquet"
    datasets.Dataset.from_dict(columns).to_parquet(str(path))
    data = GLUE(name, tokenizer, path=str(path), train_split=None, test_split="train", val_size=0, **options)
    (batch,) = list(data.test_dataloader())
    assert batch["labels"].tolist() == labels
    assert (data.task, data.metric) == (("classification", "matthews") if name == "cola" else ("regression", None))
    with pytest.raises(InputError, match="'nope', but one of cola"):
        GLUE("nope", tokenizer)


def test_a_hub_set_of_glue_has_a_configuration_for_each_task(tmp_path: Path, tokenizer: str) -> None:
    """Whichever hub set it is; a local file has none, and another name may be given."""
    assert GLUE("cola", tokenizer).source.config_name == "cola"
    assert GLUE("cola", tokenizer, path="somebody/glue").source.config_name == "cola"
    assert GLUE("cola", tokenizer, path="somebody/glue", config_name="en").source.config_name == "en"
    assert GLUE("cola", tokenizer, path=table(tmp_path)).source.config_name is None


def test_overlap_is_counted_whatever_the_punctuation() -> None:
    """Each test text that was trained on counts as often as it occurs."""
    found = overlap(["I am happy!", "No."], ["i am  HAPPY", "I am happy", "I am sad", "no"])
    assert (found.count, found.total, found.share) == (3, 4, 0.75)
    assert overlap([], []).share == 0
    assert overlap(["!!!"], ["???", "!!!"]).count == 1


@pytest.mark.parametrize("before", ["", '{"text": "a", "label": "x"}\n\n'])
def test_rows_that_are_null_are_refused(tmp_path: Path, tokenizer: str, before: str) -> None:
    """In a file or a folder of them; alone they would end the process."""
    (tmp_path / "rows").mkdir()
    path = tmp_path / "rows" / "x.jsonl"
    path.write_text(f"{before}  null  \n")
    for source in (path, tmp_path / "rows"):
        with pytest.raises(InputError, match=rf"x\.jsonl: line {3 if before else 1} is null; expected an object"):
            TextClassification(str(source), tokenizer).setup("fit")
