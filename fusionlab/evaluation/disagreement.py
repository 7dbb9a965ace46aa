"""Single examples that the end models and a merge answer differently, with what each of them predicts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fusionlab.forward import LABELS, logits

# Examples of a test set that are looked at, letters of a text and least pixels of an image that are shown.
LOOKED_AT, LETTERS, PIXELS = 1_000, 280, 64


@dataclass(frozen=True)
class Example:
    """One test example on which models differ.

    Attributes:
        data_set: the name of the data.
        text: the input, where it is a text; else None.
        image: the input as a ``data:`` address of a PNG, where it is an image; else None.
        label: the right class.
        predictions: the class that each model names, in the order of the models.
    """

    data_set: str
    text: str | None
    image: str | None
    label: str
    predictions: tuple[str, ...]


@torch.no_grad()
def disagreements(
    models: Sequence[nn.Module],
    batches: Iterable[Any],
    data_set: str,
    class_names: Sequence[str] | None = None,
    tokenizer: Any = None,
    most: int = 6,
) -> list[Example]:
    """A few examples of a test set that some models classify differently, the first found of each kind by turns.

    There are three kinds: the last model is wrong where another is right; it is right where another is wrong; all are
    wrong, but not alike.

    Args:
        models: classifiers with one label for each input, the merge last.
        batches: with labels of shape (batch,), and inputs that are images or, with a tokenizer, texts.
        data_set: the name of the data.
        class_names: of the labels; those of the last model's config if None, or their numbers.
        tokenizer: of transformers, by which tokens are read back.
        most: examples, from 0 up.

    Returns:
        At most as many; none where inputs or labels are of another kind.
    """
    kinds: list[list[Example]] = [[], [], []]
    names, seen = _names(models[-1], class_names), 0
    for batch in batches:
        if seen >= LOOKED_AT or most == 0 or all(len(kind) >= most for kind in kinds):
            break
        labels = batch.get(LABELS) if isinstance(batch, Mapping) else None
        if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.is_floating_point():
            return []
        outputs = [logits(model, _beside(batch, model)) for model in models]
        if any(output.ndim != 2 or output.shape[1] < 2 or output.shape != outputs[0].shape for output in outputs):
            return []
        found = torch.stack([output.argmax(1).cpu() for output in outputs], 1)
        seen += len(labels)
        for place in (found != found[:, :1]).any(1).nonzero().flatten().tolist():
            label, guesses = int(labels[place]), found[place].tolist()
            kind = 1 if guesses[-1] == label else 0 if label in guesses else 2
            if label < 0 or len(kinds[kind]) >= most:
                continue
            if (shown := _shown(batch, place, tokenizer)) is None:
                continue
            words = tuple(_name(names, guess) for guess in guesses)
            kinds[kind].append(Example(data_set, *shown, _name(names, label), words))
    turns = [kind[turn] for turn in range(most) for kind in kinds if turn < len(kind)]
    return turns[:most]


def _beside(batch: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """The batch on the device of a model."""
    device = next(model.parameters()).device
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def _shown(batch: Mapping[str, Any], place: int, tokenizer: Any) -> tuple[str | None, str | None] | None:
    """The text or the image of one example; None where it is neither."""
    tokens, pixels = batch.get("input_ids"), batch.get("pixel_values")
    if isinstance(tokens, Tensor) and tokens.ndim == 2 and tokenizer is not None:
        text = " ".join(tokenizer.decode(tokens[place], skip_special_tokens=True).split())
        return text if len(text) <= LETTERS else f"{text[: LETTERS - 3]}...", None
    if isinstance(pixels, Tensor) and pixels.ndim == 4 and pixels.shape[1] in (1, 3):
        return None, png_address(pixels[place])
    return None


def png_address(pixels: Tensor) -> str:
    """An image as a ``data:`` address, from its darkest number to its brightest, and large enough to be seen.

    Args:
        pixels: shape (1 or 3, height, width), any range.
    """
    values = pixels.float().cpu()
    low, high = float(values.min()), float(values.max())
    grey = ((values - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8).movedim(0, 2).squeeze(2).numpy()
    image = Image.fromarray(grey)
    factor = max(1, -(-PIXELS // min(image.size)))
    image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _names(model: nn.Module, class_names: Sequence[str] | None) -> Mapping[int, str]:
    if class_names is not None:
        return dict(enumerate(class_names))
    known = getattr(getattr(model, "config", None), "id2label", None) or {}
    return {int(place): str(name) for place, name in known.items() if str(name) != f"LABEL_{place}"}


def _name(names: Mapping[int, str], label: int) -> str:
    return names.get(label, str(label))
