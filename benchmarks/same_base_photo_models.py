"""Fine-tunes of one ViT for CIFAR-10 on eight tasks that are made of its photos and of digits."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from same_base_models import HEAD, ImageFamily, Images, Task, kept
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Subset
from trained_rows import CIFAR_DEVIATION, CIFAR_MEAN

import fusionlab
from fusionlab.data import Digits
from fusionlab.data import Images as ImageData

# Photos that the base models were trained on; of the others the first are drawn from for fine-tuning, the last are for
# validation. Test photos are the first of the test split.
SEEN, OTHERS = 30_000, 50_000
TRAINED, VALIDATED, TESTED = 4_000, 300, 500
EPOCHS, AT_ONCE, HEAD_STEPS = 4, 32, 200
SIDE = 32
Source = Literal["photos", "digits"]


@dataclass(frozen=True)
class PhotoTask(Task):
    """The same of an image ``(count, 3, 32, 32)`` out of a source: photos, or digits that are made as large."""

    source: Source = "photos"


def _turned(pixels: Tensor) -> Tensor:
    return pixels.rot90(1, (2, 3))


def _other_colours(pixels: Tensor) -> Tensor:
    return -pixels[:, [2, 0, 1]]


def _under_noise(pixels: Tensor) -> Tensor:
    return pixels + NOISE


def _moved_quarters(pixels: Tensor) -> Tensor:
    return pixels.roll((SIDE // 2, SIDE // 2), (2, 3))


def _blurred(pixels: Tensor) -> Tensor:
    return interpolate(nn.functional.avg_pool2d(pixels, 4), scale_factor=4.0).flip(2)


def _rows_apart(pixels: Tensor) -> Tensor:
    return torch.cat([pixels[:, :, ::2], pixels[:, :, 1::2]], 2)


def _is_animal(label: Tensor) -> Tensor:
    return ((label >= 2) & (label <= 7)).long()


NOISE = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
# The first four are the group of four.
TASKS = (
    PhotoTask("turned by 90 degrees", _turned),
    PhotoTask("digits", source="digits"),
    PhotoTask("other colours", _other_colours),
    PhotoTask("under one pattern of noise", _under_noise),
    PhotoTask("quarters exchanged", _moved_quarters),
    PhotoTask("animal or vehicle, upside down", lambda pixels: pixels.flip(2), _is_animal),
    PhotoTask("blurred and upside down", _blurred),
    PhotoTask("even rows above odd ones", _rows_apart),
)


class PhotoFamily(ImageFamily):
    """A ViT for CIFAR-10 and its fine-tunes of one seed, each under a head that was fitted to the base model.

    Args:
        seed: of heads, images and their order.
        folder: of the fine-tunes; what is missing in it is trained.
        photos: folder of CIFAR-10 with the columns ``image`` and ``label``.
        base: folder of the base model, which was trained on the first 30,000 photos.
    """

    names = tuple(task.name for task in TASKS)

    def __init__(self, seed: int, folder: Path, photos: Path, base: Path) -> None:
        self.seed, self._photos = seed, photos
        self.base = fusionlab.load(base)
        self.tuned = kept(
            folder / f"{seed}.pt",
            lambda: [copy.deepcopy(self.base) for _ in TASKS],
            lambda: [self._tuned(place) for place in range(len(TASKS))],
        )

    def images(self, place: int, split: str) -> Images:
        """Images and labels of a task."""
        return TASKS[place].of(self._sets[split, TASKS[place].source])

    @cached_property
    def _sets(self) -> dict[tuple[str, Source], Images]:
        return _splits(self._photos, self.seed)

    def _tuned(self, place: int) -> nn.Module:
        task, draw = TASKS[place], torch.Generator().manual_seed(self.seed)
        model = with_fitted_head(self.base, *self.images(place, "tuned"), self.seed)
        pixels, labels = self._sets["tuned", task.source]
        chosen = [part for _ in range(EPOCHS) for part in torch.randperm(len(labels), generator=draw).split(AT_ONCE)]
        # Photos half of the time the other way round, before anything becomes of them.
        share = 0.5 if task.source == "photos" else 0.0
        batches = [task.of((_mirrored(pixels[part], share, draw), labels[part])) for part in chosen]
        return self.body_tuned(model, batches).requires_grad_(True)


def with_fitted_head(base: nn.Module, pixels: Tensor, labels: Tensor, seed: int) -> nn.Module:
    """A copy of the base model under a head that was drawn, and fitted to what it says of images.

    Args:
        base: a ViT.
        pixels: of the images.
        labels: of the images.
        seed: of the head's first numbers.
    """
    model: Any = copy.deepcopy(base)
    head: Any = model.get_submodule(HEAD.rstrip("."))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head.reset_parameters()
    with torch.no_grad():
        said = torch.cat([model.vit(pixel_values=part).last_hidden_state[:, 0] for part in pixels.split(100)])
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=0.01)
    for _ in range(HEAD_STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(said), labels).backward()
        optimizer.step()
    return model


def _splits(photos: Path, seed: int) -> dict[tuple[str, Source], Images]:
    """Images for the fine-tunes, which are drawn by the seed, for validation and for the test."""
    options: dict[str, Any] = {
        "path": str(photos), "image_column": "image", "label_column": "label", "val_size": 0, "mean": CIFAR_MEAN,
        "std": CIFAR_DEVIATION, "image_size": SIDE, "batch_size": 100, "augment": False,
        "train_split": f"train[{SEEN}:{OTHERS}]", "test_split": f"test[:{TESTED}]",
    }  # fmt: skip
    data = ImageData(**options)
    data.setup("fit")
    data.setup("test")
    train: Any = data.train_dataloader()
    test: Any = data.test_dataloader()
    others = len(train.dataset) - VALIDATED
    drawn = torch.randperm(others, generator=torch.Generator().manual_seed(seed))[:TRAINED].tolist()
    digits = Digits(val_size=VALIDATED)
    return {
        ("tuned", "photos"): _photos(train, drawn),
        ("validation", "photos"): _photos(train, range(others, others + VALIDATED)),
        ("test", "photos"): _photos(test, range(len(test.dataset))),
        ("tuned", "digits"): _enlarged(digits.train_set),
        ("validation", "digits"): _enlarged(digits.val_set),
        ("test", "digits"): _enlarged(digits.test_set),
    }


def _mirrored(pixels: Tensor, share: float, draw: torch.Generator) -> Tensor:
    """Images of which a share, drawn at random, is the other way round."""
    is_mirrored = torch.rand(len(pixels), 1, 1, 1, generator=draw) < share
    return torch.where(is_mirrored, pixels.flip(3), pixels)


def _photos(loader: Any, chosen: Sequence[int]) -> Images:
    """Some of a loader's photos, in this order."""
    parts = list(DataLoader(Subset(loader.dataset, chosen), batch_size=100, collate_fn=loader.collate_fn))
    return torch.cat([part["pixel_values"] for part in parts]), torch.cat([part["labels"] for part in parts])


def _enlarged(digits: Any) -> Images:
    """Digits as large as photos, alike in all colours."""
    return interpolate(digits.pixel_values, SIDE, mode="bilinear").expand(-1, 3, -1, -1), digits.labels
