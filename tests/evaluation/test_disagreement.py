"""Examples that models classify differently: which are found, what is shown of them, and what is passed over."""

import base64
import io
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation import disagreement
from fusionlab.evaluation.disagreement import LETTERS, disagreements, png_address
from fusionlab.experiment import Plan


class Answers(nn.Module):
    """Says for each image the class that stands in its pixel of a place."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.unused = place, nn.Parameter(torch.zeros(()))

    def forward(self, pixels: Tensor, *_: Tensor) -> Tensor:
        return nn.functional.one_hot(pixels.flatten(1)[:, self.place].long(), 3).float()


class Words:
    """Reads tokens back as a text that is their number in strokes."""

    def decode(self, tokens: Tensor, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "word  " * int(tokens.sum())


def batch(answers: list[list[int]], labels: list[int]) -> dict[str, Tensor]:
    pixels = torch.tensor(answers, dtype=torch.float32).reshape(len(answers), 1, 1, 3)
    return {"pixel_values": pixels, "labels": torch.tensor(labels)}


# What the two end models and the merge say.
ANSWERS, LABELS = [[0, 0, 0], [0, 1, 1], [1, 0, 1], [2, 2, 0], [0, 2, 2], [1, 1, 2]], [1, 0, 0, 2, 1, 2]
MODELS = [Answers(0), Answers(1), Answers(2)]


def test_kinds_take_turns() -> None:
    """First where the merge alone or with others is wrong, then where it is right, then where none is."""
    found = disagreements(MODELS, [batch(ANSWERS, LABELS)], "x", ["a", "b", "c"], most=10)
    assert [(one.label, *one.predictions) for one in found] == [
        ("a", "a", "b", "b"), ("c", "b", "b", "c"), ("b", "a", "c", "c"), ("a", "b", "a", "b"), ("c", "c", "c", "a"),
    ]  # fmt: skip
    assert found[:2] == disagreements(MODELS, [batch(ANSWERS, LABELS)], "x", ["a", "b", "c"], most=2)
    assert disagreements(MODELS, [batch(ANSWERS, LABELS)], "x", most=0) == []
    assert [one.label for one in disagreements(MODELS, [batch(ANSWERS[:2], LABELS[:2])], "x")] == ["0"]


def test_images_and_texts_are_shown() -> None:
    """An image from its darkest to its brightest pixel, a text cut where it is long."""
    address = png_address(torch.tensor([[[-1.0, 3.0]]]))
    image = Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
    assert (image.size, image.getpixel((0, 0)), image.getpixel((127, 63))) == ((128, 64), 0, 255)
    assert Image.open(io.BytesIO(base64.b64decode(png_address(torch.rand(3, 5, 5)).partition(",")[2]))).mode == "RGB"
    texts = {"x": torch.tensor(ANSWERS)[:2], "input_ids": torch.tensor([[1], [500]]), "labels": torch.tensor([1, 0])}
    (one,) = disagreements(MODELS, [texts], "x", tokenizer=Words())
    assert one.image is None
    assert one.text is not None
    assert one.text.startswith("word word")
    assert len(one.text) == LETTERS


def test_no_more_are_drawn_than_may_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand that all are of one kind, as many pictures as are asked for."""
    drawn: list[Tensor] = []

    def draw(pixels: Tensor) -> str:
        drawn.append(pixels)
        return png_address(pixels)

    monkeypatch.setattr(disagreement, "png_address", draw)
    assert len(disagreements(MODELS, [batch([[1, 0, 0]] * 50, [1] * 50)], "x", most=2)) == len(drawn) == 2


CHANGES = [{"labels": torch.tensor([[0], [1]])}, {"labels": torch.tensor([0.5, 1.0])}, {"pixel_values": None}]


@pytest.mark.parametrize("change", CHANGES)
def test_other_tasks_are_passed_over(change: dict[str, Any]) -> None:
    """Several labels for an input, numbers for labels, inputs that are neither images nor texts."""
    whole = batch(ANSWERS[:2], LABELS[:2])
    given = {"x": whole["pixel_values"], **whole, **change}
    assert disagreements(MODELS, [{name: one for name, one in given.items() if one is not None}], "x") == []
    assert disagreements(MODELS, [[torch.zeros(2)]], "x") == []


def test_a_plan_refuses_other_numbers() -> None:
    with pytest.raises(InputError, match="examples is -1; expected a number from 0 to 100"):
        Plan(examples=-1)
