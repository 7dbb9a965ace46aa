"""A file alone becomes the data module that a checkpoint needs: every kind of head, every kind of file."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from lightning.pytorch import LightningDataModule
from PIL import Image
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab import checkpoints
from fusionlab.data import LanguageModelling, OwnData, TextClassification, own_data
from fusionlab.data.choosing import Use
from fusionlab.data.purpose import head_of
from fusionlab.data.tokenizers import byte_tokenizer, load_tokenizer
from fusionlab.errors import InputError

WIDTH: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
}  # fmt: skip
TOKENS: dict[str, Any] = {"vocab_size": 259, "max_position_embeddings": 40, "pad_token_id": 256}
TAGS = ["O", "B-PER", "B-LOC", "I-PER", "I-LOC"]


def names(*labels: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}


def models() -> dict[str, torch.nn.Module]:
    """A model for each kind of head; each has its tokenizer or nothing beside it."""
    text: dict[str, Any] = {**WIDTH, **TOKENS}
    return {
        "texts": BertForSequenceClassification(BertConfig(**text, **names("negative", "positive"))),
        "several": BertForSequenceClassification(
            BertConfig(**text, **names("joy", "fear"), problem_type="multi_label_classification")
        ),
        "number": BertForSequenceClassification(BertConfig(**text, num_labels=1)),
        "words": BertForTokenClassification(BertConfig(**text, **names(*TAGS))),
        "masked": BertForMaskedLM(BertConfig(**text)),
        "causal": GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=40, n_embd=8, n_layer=1, n_head=2)),
        "images": ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **WIDTH, **names("dog", "cat"))),
        "choices": BertForMultipleChoice(BertConfig(**text)),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of `models`, under their names."""
    place = tmp_path_factory.mktemp("models")
    for name, model in models().items():
        checkpoints.save(model, place / name)
        if name != "images":
            byte_tokenizer().save_pretrained(place / name)
    return place


def written(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return str(path)


def reviews(path: Path) -> str:
    texts = [f"what {'joy' if row % 2 else 'grief'} {row}" for row in range(20)]
    labels = ["Negative", "Positive"] * 10
    return written(path, [{"id": i, "review": texts[i], "stars": labels[i]} for i in range(20)])


def fitted(path: str, checkpoint: Path, use: Use = "measuring", **options: Any) -> tuple[LightningDataModule, str]:
    return OwnData(path, **options).fitted(checkpoints.read(checkpoint), use)


def measured(module: Any) -> dict[str, torch.Tensor]:
    module.setup("test")
    return next(iter(module.test_dataloader()))


def test_a_table_of_texts(tmp_path: Path, folder: Path) -> None:
    """Columns, labels in the model's order, tokenizer and lengths are found; a fifth is held out; all is said."""
    path = reviews(tmp_path / "mine.csv")
    module, told = fitted(path, folder / "texts")
    assert told.startswith(
        f"{path}: text from `review`; label from `stars` (negative, positive); no test split, so 20%"
    )
    for option in ("text_column", "label_column", "test_size"):
        assert f"--data.{option}" in told
    assert isinstance(module, TextClassification)
    assert module.name == "mine"
    assert module.class_names == ["negative", "positive"]
    batch = measured(module)
    assert len(batch["labels"]) == 4
    tokenizer = load_tokenizer(str(folder / "texts"))
    for tokens, label in zip(batch["input_ids"], batch["labels"], strict=True):
        assert ("joy" in tokenizer.decode(tokens)) is bool(label == 1)
    assert batch["input_ids"].shape[1] <= 38


def test_every_guess_can_be_overruled(tmp_path: Path, folder: Path) -> None:
    path = reviews(tmp_path / "mine.csv")
    options = {"text_column": "stars", "label_column": "stars", "label_values": "Positive,Negative", "test_size": 3}
    module, told = fitted(path, folder / "texts", **options)
    batch = measured(module)
    tokenizer = load_tokenizer(str(folder / "texts"))
    assert len(batch["labels"]) == 3
    assert [tokenizer.decode(t, skip_special_tokens=True) for t in batch["input_ids"]] == [
        ["Positive", "Negative"][label] for label in batch["labels"]
    ]
    assert "--data.text_column" not in told
    for wrong, sentence in (
        ({"text_column": "revue"}, "has no column 'revue'; it has id, review, stars"),
        ({"label_column": "id"}, "expected data.label_column"),
        ({"label_values": "a,b,c"}, "data.label_values has 3 values, and the model's 2 classes"),
        ({"label_values": ["yes", "no"], "label_column": "stars"}, "data.label_values names 'yes', 'no'"),
    ):
        with pytest.raises(InputError, match=sentence):
            measured(fitted(path, folder / "texts", **wrong)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ([False, True], {}, "False taken for negative, True for positive"),
        ([0.0, 1.0], {}, "0 negative, 1 positive"),
        ([1, 5], {"label_values": "1,5"}, "label from `mark`"),
        ([1.0, 5.0], {"label_values": "1,5"}, "label from `mark`"),
    ],
)
def test_labels_as_numbers(column: list[Any], options: dict[str, Any], said: str, tmp_path: Path, folder: Path) -> None:
    """Switches and numbers, in a column that nobody names; a missing one makes the others decimal."""
    name = "mark" if options else "label"
    rows = [{"text": f"what {index % 2}", name: column[index % 2]} for index in range(20)] + [{"text": "w", name: ""}]
    module, told = fitted(written(tmp_path / "mine.csv", rows), folder / "texts", **options)
    assert said in told
    tokenizer = load_tokenizer(str(folder / "texts"))
    batch = measured(module)
    for tokens, label in zip(batch["input_ids"], batch["labels"], strict=True):
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        assert label == (-100 if text == "w" else int(text[-1]))


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv", "csv", "saved", "saved splits", "folder"])
def test_kinds_of_files(kind: str, tmp_path: Path, folder: Path) -> None:
    """All give the batches of the CSV file."""
    path, table = tmp_path / f"mine.{kind}", Dataset.from_csv(reviews(tmp_path / "mine.csv"))
    if kind in ("parquet", "jsonl"):
        (table.to_parquet if kind == "parquet" else table.to_json)(str(path))
    elif kind in ("tsv", "csv"):
        table.to_csv(str(path), sep="\t" if kind == "tsv" else ";", index=False)
    elif kind == "saved":
        table.save_to_disk(str(path))
    elif kind == "saved splits":
        DatasetDict({"train": table, "test": table.select(range(5))}).save_to_disk(str(path))
    else:
        path.mkdir()
        for name, part in (("train", table), ("test", table.select(range(5)))):
            part.to_csv(str(path / f"{name}.csv"), sep=";", index=False)
    module, told = fitted(str(path), folder / "texts")
    has_test = kind in ("saved splits", "folder")
    said = ("no test split" in told, "columns divided by ';'" in told)
    assert said == (not has_test, kind in ("csv", "folder"))
    assert len(measured(module)["labels"]) == (5 if has_test else 4)


def test_a_column_that_names_the_splits(tmp_path: Path, folder: Path) -> None:
    """It is found by its name where it has a test split."""
    rows = [{"text": f"a {i}", "label": i % 2, "split": "test" if i < 3 else "train"} for i in range(10)]
    module, told = fitted(written(tmp_path / "one.csv", rows), folder / "texts")
    assert "splits from `split`" in told
    assert len(measured(module)["labels"]) == 3


def test_tasks_of_texts(tmp_path: Path, folder: Path) -> None:
    """Several labels and numbers, as the head has them."""
    lists = Dataset.from_list([{"text": f"a {i}", "emotions": [["joy"], ["fear", "joy"]][i % 2]} for i in range(10)])
    lists.to_json(str(tmp_path / "lists.jsonl"))
    batch = measured(fitted(str(tmp_path / "lists.jsonl"), folder / "several")[0])
    assert batch["labels"].shape == (2, 2)
    assert batch["labels"][:, 0].tolist() == [1, 1]
    numbers = written(tmp_path / "numbers.csv", [{"text": f"a {i}", "score": i / 2} for i in range(10)])
    assert measured(fitted(numbers, folder / "number")[0])["labels"].dtype == torch.float32


@pytest.mark.parametrize("layout", ["lines", "folder", "table"])
def test_words_with_tags(layout: str, tmp_path: Path, folder: Path) -> None:
    """Tags get the numbers that the checkpoint has for them, in whatever order it has them."""
    sentence = "Ann O B-PER\nLee O I-PER\nin O O\nRome O B-LOC\n\n"
    path = tmp_path / {"lines": "some.conll", "folder": "some", "table": "some.jsonl"}[layout]
    if layout == "lines":
        path.write_text(sentence * 10)
    elif layout == "folder":
        path.mkdir()
        for split in ("train", "test"):
            (path / f"{split}.txt").write_text(sentence * 2)
    else:
        rows = [{"tokens": ["Ann", "Lee", "in", "Rome"], "ner_tags": ["B-PER", "I-PER", "O", "B-LOC"]}] * 10
        Dataset.from_list(rows).to_json(str(path))
    module, told = fitted(str(path), folder / "words")
    labels = measured(module)["labels"]
    assert len(labels) == 2
    assert labels[0][labels[0] != -100].tolist() == [TAGS.index(tag) for tag in ("B-PER", "I-PER", "O", "B-LOC")]
    assert "`tokens`" in told if layout == "table" else "first column" in told
    if layout == "lines":
        path.write_text(sentence.replace("LOC", "ORG") * 10)
        with pytest.raises(
            InputError, match=r"some.conll: 10 words have tags that the model lacks \(B-ORG; it has O, B-"
        ):
            fitted(str(path), folder / "words")
        fitted(str(path), folder / "words", "inputs")


@pytest.mark.parametrize("name", ["masked", "causal"])
def test_running_text(name: str, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("\n".join(f"line {i} of a book" for i in range(30)))
    module, _ = fitted(str(path), folder / name)
    assert isinstance(module, LanguageModelling)
    assert module.task == f"{name}_lm"
    assert measured(module)["input_ids"].shape[1] == 38


def test_a_folder_of_images(tmp_path: Path, folder: Path) -> None:
    """Folders are classes by their names, though their alphabetical order is not the model's; sizes are the model's."""
    for name, level in (("cat", 0), ("dog", 255)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(5):
            Image.fromarray(np.full((9, 9, 3), level, np.uint8)).save(tmp_path / "pets" / name / f"{index}.png")
    module, told = fitted(str(tmp_path / "pets"), folder / "images")
    assert "images from `image`; label from `label` (dog, cat)" in told
    batch = measured(module)
    assert batch["pixel_values"].shape == (2, 3, 8, 8)
    assert [("dog", "cat")[label] for label in batch["labels"]] == [
        "dog" if picture.mean() > 0 else "cat" for picture in batch["pixel_values"]
    ]
    whole: Any = fitted(str(tmp_path / "pets"), folder / "images", "outside")[0]
    assert len(measured(whole)["labels"]) == 10


def test_inputs_need_no_labels(tmp_path: Path, folder: Path) -> None:
    """What is only looked at; measuring asks for them."""
    path = written(tmp_path / "plain.csv", [{"comment": f"text {i}"} for i in range(10)])
    module: Any = fitted(path, folder / "texts", "inputs")[0]
    module.setup("fit")
    assert "labels" not in next(iter(module.train_dataloader()))
    with pytest.raises(InputError, match=r"plain.csv: no column holds labels of the model.*data.label_column"):
        fitted(path, folder / "texts")


def test_out_of_domain_all_rows_are_measured_on(tmp_path: Path, folder: Path) -> None:
    module, told = fitted(reviews(tmp_path / "mine.csv"), folder / "texts", "outside")
    assert "measured on all of its rows" in told
    assert len(measured(module)["labels"]) == 20


def test_mistakes(tmp_path: Path, folder: Path) -> None:
    """No such file, with what lies beside it; a model that no data are known for; a checkpoint without tokenizer."""
    reviews(tmp_path / "mine.csv")
    with pytest.raises(InputError, match=r"mime.csv: there is no such file or folder; did you mean .*mine.csv\?"):
        OwnData(str(tmp_path / "mime.csv"))
    with pytest.raises(InputError, match=r"owner/name: cannot be read .*HF_HUB_OFFLINE.*or give a file or folder"):
        own_data("owner/name", folder / "texts")
    with pytest.raises(InputError, match="is a BertForMultipleChoice, for which no data can be guessed"):
        own_data(str(tmp_path / "mine.csv"), folder / "choices")
    bare = tmp_path / "bare"
    checkpoints.save(models()["texts"], bare)
    with pytest.raises(InputError, match=r"bare has no tokenizer.*expected data.tokenizer"):
        own_data(str(tmp_path / "mine.csv"), bare)
    told = own_data(str(tmp_path / "mine.csv"), bare, tokenizer="bytes")
    assert len(measured(told)["labels"]) == 4
    with pytest.raises(InputError, match="follow from a checkpoint, and none is known"):
        OwnData(str(tmp_path / "mine.csv")).setup("fit")


def test_the_tokenizer_of_a_lightning_file(tmp_path: Path, folder: Path) -> None:
    """The file says which tokenizer its data had, since nothing lies beside it."""
    model = models()["texts"]
    archive = {
        "state_dict": {f"model.{name}": tensor for name, tensor in model.state_dict().items()},
        "fusionlab": checkpoints.describe(model),
        "datamodule_hyper_parameters": {"tokenizer": str(folder / "texts")},
    }
    torch.save(archive, tmp_path / "one.ckpt")
    assert head_of(checkpoints.read(tmp_path / "one.ckpt")).tokenizer() == str(folder / "texts")
