"""One contract says what data modules tell of their data: all members are optional, wrong ones are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from fusionlab.data import Digits, Union
from fusionlab.data.contract import DataFacts, described
from fusionlab.errors import InputError
from fusionlab.inputs import Inputs
from fusionlab.tasks import ImageClassification
from tests.tasks.test_image_classification import VIT, trainer

MEMBERS = [name for name in vars(DataFacts) if not name.startswith("_")]
# Members that are known without reading any data.
AT_ONCE = {"name", "task", "metric", "texts", "label_counts"}


class Plain(LightningDataModule):
    """Loaders of digits, and nothing said about them."""

    def train_dataloader(self) -> DataLoader:
        return Digits().train_dataloader()


def stating(**members: Any) -> LightningDataModule:
    """A data module of a class of its own that has these members."""
    return type("Stating", (Plain,), members)()


def test_nothing_need_be_stated() -> None:
    data = described(Plain())
    assert data.name == "Plain"
    assert [getattr(data, name) for name in ("task", "class_names", "num_classes", "metric")] == [None] * 4
    assert (data.tokenizer, data.vocabulary_size, data.texts("train"), data.label_counts()) == (None, None, [], None)


def test_what_is_stated_is_read_anew_each_time() -> None:
    """Names of classes are often known only once the data are read."""
    module: Any = stating(name="given", task="multilabel", metric="macro_f1", texts=lambda self, split: [f"{split}!"])
    data = described(module)
    assert (data.name, data.task, data.metric, data.texts("test")) == ("given", "multilabel", "macro_f1", ["test!"])
    module.class_names, module.num_classes = ("x", "y"), 2
    assert (data.class_names, data.num_classes) == (("x", "y"), 2)


def test_members_that_read_data_are_left_alone_until_asked_for() -> None:
    def unread(self: Any) -> Any:
        raise InputError("the data are not there")

    data = described(
        stating(**dict.fromkeys(("class_names", "num_classes", "tokenizer", "vocabulary_size"), property(unread)))
    )
    for ask in (
        lambda: data.class_names,
        lambda: data.num_classes,
        lambda: data.tokenizer,
        lambda: data.vocabulary_size,
    ):
        with pytest.raises(InputError, match="the data are not there"):
            ask()


WRONG = {
    "name": (3, "text"),
    "task": (
        "tagging",
        "one of classification, multilabel, regression, tokens, question_answering, masked_lm, causal_lm, seq2seq, "
        "similarity",
    ),
    "class_names": ("abc", "a list of names"),
    "num_classes": (0, "a number of at least 1"),
    "metric": ("f2", "one of accuracy, macro_f1, matthews"),
    "pooling": ("max", "one of mean, cls"),
    "tokenizer": ("bert", "a tokenizer of transformers"),
    "vocabulary_size": ("large", "a number of at least 1"),
    "decoder_start": ("first", "the number of a token, or 'last'"),
    "texts": (["a text"], "a method"),
    "label_counts": (torch.ones(2), "a method"),
}


@pytest.mark.parametrize("member", MEMBERS)
def test_each_wrong_member_is_refused_in_one_sentence(member: str) -> None:
    """Where it is given, if no data need be read for it, and else when it is read."""
    value, expected = WRONG[member]
    sentence = rf"^{member} of the data module Stating is .*; expected {expected}$"
    module = stating(**{member: value})
    if member in AT_ONCE:
        with pytest.raises(InputError, match=sentence):
            described(module)
        return
    data = described(module)
    with pytest.raises(InputError, match=sentence):
        getattr(data, member)


def test_names_of_classes_are_all_text() -> None:
    with pytest.raises(InputError, match=r"class_names .* is \['a', 3\]; expected a list of names"):
        _ = described(stating(class_names=["a", 3])).class_names


def test_data_are_checked_where_they_are_given(tmp_path: Path) -> None:
    """For a fit, as inputs of matching, and as a part of a union."""
    wrong: Any = stating(task="tagging")
    for give in (
        lambda: Union([wrong]),
        lambda: Inputs.of([wrong], 1),
        lambda: trainer(tmp_path).fit(ImageClassification(VIT, 10), datamodule=wrong),
    ):
        with pytest.raises(InputError, match="task of the data module Stating is 'tagging'"):
            give()


def test_a_union_counts_labels_where_all_of_its_parts_do() -> None:
    digits: Any = Digits()
    counts = described(Union([digits, digits])).label_counts()
    assert counts is not None
    assert torch.equal(counts, 2 * digits.label_counts())
    uncounted = stating(task="classification")
    assert described(Union([digits, uncounted])).label_counts() is None
    assert described(Union([Plain()])).name == "Plain"


def test_the_facts_of_digits() -> None:
    data = described(Digits(classes=[3]))
    assert (data.name, data.task, data.num_classes) == ("digits", "classification", 10)
    assert data.class_names == list("0123456789")
    counts = data.label_counts()
    assert counts is not None
    assert counts.nonzero().tolist() == [[3]]
