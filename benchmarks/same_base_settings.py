"""Which fine-tunes of one base are merged: of digits, of photos, and of texts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from same_base_models import AdapterFamily, DigitsFamily
from same_base_photo_models import PhotoFamily
from same_base_text_models import PASSES, TRAINED, TextFamily
from same_base_words import ADAPTERS, DIGITS, PHOTOS, TEXT, Words
from torch import Tensor, nn

from fusionlab.types import Batch

ROOT = Path(__file__).parents[1]


class Family(Protocol):
    """A base model and its fine-tunes, one for each task."""

    @property
    def base(self) -> nn.Module:
        """The base model, under a head that does not count."""

    @property
    def tuned(self) -> list[nn.Module]:
        """The fine-tunes, each under a head of its own."""

    def body(self, model: nn.Module) -> dict[str, Tensor]:
        """What is merged of a model."""

    def under(self, body: dict[str, Tensor], place: int) -> nn.Module:
        """A body under the head of the fine-tune in a place."""

    def score(self, model: nn.Module, place: int, split: str) -> float:
        """The score of a model on a task, on its ``validation`` or ``test`` examples."""

    def inputs(self, place: int, count: int | None = None) -> Sequence[Batch]:
        """Training inputs of a task, without labels: so many, or as many as methods look at where no number is said."""


@dataclass(frozen=True)
class Setting:
    """Fine-tunes of one base.

    Attributes:
        file: of the cells below ``docs/results``, without its suffix; the page beside it has the same name.
        words: of the page.
        names: of the tasks.
        counts: of tasks that are merged at once.
        tuning: seeds of the models that hyperparameters are chosen on.
        test: seeds of the models of the tables.
        family: the models of a seed.
        with_data: by method what is tried on the tuning models beside data at hand, where it is more than one; None for
            what same_base.py chose.
        steps: of a polish that are tried on the tuning models, where it is more than one.
        rates: of learning in a polish that are tried likewise, each with every number of steps; None for its default.
        tried_on: inputs of each task that both are tried with.
        inputs: of each task, without labels, of the polishes of the curve.
        polish: options of a polish, beside its steps.
        passes: accelerator, devices and precision of a polish.
    """

    file: str
    words: Words
    names: Sequence[str]
    counts: Sequence[int]
    tuning: Sequence[int]
    test: Sequence[int]
    family: Callable[[int, argparse.Namespace], Family]
    with_data: dict[str, list[dict[str, Any]] | None]
    steps: Sequence[int] = (100, 300)
    rates: Sequence[float | None] = (None,)
    tried_on: int = 64
    inputs: Sequence[int] = (16, 64, 256)
    polish: dict[str, Any] = field(default_factory=dict)
    passes: dict[str, Any] = field(default_factory=lambda: {"accelerator": "cpu", "devices": 1})

    @property
    def polishes(self) -> list[tuple[int, float | None]]:
        """Steps and rates that are tried on the tuning models."""
        return [(steps, rate) for steps in self.steps for rate in self.rates]


def photos(seed: int, models: Path, data: Path) -> PhotoFamily:
    """Fine-tunes for photos: the tuning seed's of one base model, all others of another.

    Args:
        seed: of the fine-tunes.
        models: folder of end models.
        data: folder of the photos and of both base models.
    """
    base = data / "models" / f"cifar10_vit_seed{2 if seed in SETTINGS['photos'].tuning else 1}"
    return PhotoFamily(seed, models / "same_base_photos", data / "vision" / "cifar10_jpeg", base)


SEARCHED = ", searched"
# Searches look at validation examples of the test models, so there is nothing to choose. None: as same_base.py chose.
WITH_DATA: dict[str, list[dict[str, Any]] | None] = {
    "simple": None,
    "tsv_m": None,
    "regmean": None,
    "adamerging": [{}, {"by": "task"}],
    f"task_arithmetic{SEARCHED}": [{"trials": 40}],
}
SETTINGS = {
    "digits": Setting(
        file="same_base", words=DIGITS, names=DigitsFamily.names, counts=(4, 8), tuning=(11, 12), test=(1, 2, 3, 4, 5),
        family=lambda seed, args: DigitsFamily(seed, args.models / "same_base"), with_data=WITH_DATA,
    ),
    "text": Setting(
        file="same_base_text", words=TEXT, names=TextFamily.names, counts=(2, 4, 8), tuning=(11,), test=(1, 2, 3),
        family=lambda seed, args: TextFamily(seed, args.models / "same_base_text", args.texts, args.minilm),
        with_data={method: grid for method, grid in WITH_DATA.items() if grid is None},
        steps=(100, 300), rates=(None, 6e-5), tried_on=TRAINED, inputs=(64, 256, TRAINED), polish={"batch_size": 16},
        passes=PASSES,
    ),
    "adapters": Setting(
        file="same_base_adapters", words=ADAPTERS, names=DigitsFamily.names, counts=(4, 8), tuning=(11, 12),
        test=(1, 2, 3), family=lambda seed, args: AdapterFamily(seed, args.models / "same_base_adapters"),
        with_data=WITH_DATA,
    ),
    "photos": Setting(
        file="same_base_photos", words=PHOTOS, names=PhotoFamily.names, counts=(4, 8), tuning=(11,), test=(1, 2, 3),
        family=lambda seed, args: photos(seed, args.models, args.texts), with_data=WITH_DATA,
    ),
}  # fmt: skip
