"""Fine-tunes of one base on eight tasks that are made of scikit-learn's digits, and what each task scores."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from transformers import ViTConfig, ViTForImageClassification

from fusionlab.atomic import atomic_file
from fusionlab.data import Digits
from fusionlab.models import with_state
from fusionlab.types import Batch

Images = tuple[Tensor, Tensor]
HEAD = "classifier."
# Of the 1,400 training images the base sees the first, the fine-tunes the next; the last are for validation.
OF_BASE, VALIDATION = 600, 200
RATE = 5e-4
# Of adapters: their rank, the matrices that have one, and the learning rate.
RANK, ADAPTED, ADAPTER_RATE = 8, r".*(query|key|value|dense|fc1|fc2|proj)", 1e-2


@dataclass(frozen=True)
class Task:
    """What becomes of an image ``(count, 1, 8, 8)``, and which question about the digit is asked."""

    name: str
    image: Callable[[Tensor], Tensor] = lambda pixels: pixels
    label: Callable[[Tensor], Tensor] = lambda digit: digit

    def of(self, images: Images) -> Images:
        """Images and labels of this task."""
        pixels, digits = images
        return self.image(pixels), self.label(digits)


NOISE = 0.8 * torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
CHECKERS = 1 - 2.0 * (torch.arange(8)[:, None] + torch.arange(8)).remainder(2)
LEFT_NEGATIVE = torch.tensor([-1.0] * 4 + [1.0] * 4)
ALTERNATE = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
SWAPPED = torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])
LOOPS = torch.tensor([0, 6, 8, 9])
# The first four are the group of four.
TASKS = (
    Task("turned by 90 degrees", image=lambda pixels: pixels.rot90(1, (2, 3))),
    Task("under one pattern of noise", image=lambda pixels: pixels + NOISE),
    Task("odd or even", label=lambda digit: digit % 2),
    Task("every other pixel negative", image=lambda pixels: pixels * CHECKERS),
    Task("left half negative", image=lambda pixels: pixels * LEFT_NEGATIVE),
    Task("even rows before odd ones", image=lambda pixels: pixels[:, :, ALTERNATE]),
    Task("with a loop or without", label=lambda digit: torch.isin(digit, LOOPS).long()),
    Task("neighbouring columns exchanged", image=lambda pixels: pixels[..., SWAPPED]),
)


class ImageFamily(ABC):
    """A base model for images and its fine-tunes, one for each task, each under a head that stays.

    Attributes:
        seed: of the models.
        base: the base model.
        tuned: the fine-tunes.
    """

    seed: int
    base: nn.Module
    tuned: list[nn.Module]

    @abstractmethod
    def images(self, place: int, split: str) -> Images:
        """Images and labels of a task: those that it was ``tuned`` on, or for ``validation`` or ``test``."""

    @staticmethod
    def body_tuned(model: nn.Module, batches: Sequence[Images]) -> nn.Module:
        """The model after a step on each batch, in which all but its head learns."""
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.startswith(HEAD))
        return descended(model, batches, len(batches), RATE)

    def body(self, model: nn.Module) -> dict[str, Tensor]:
        """A model's parameters but for its head, which is not merged."""
        return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(HEAD)}

    def under(self, body: dict[str, Tensor], place: int) -> nn.Module:
        """A body under the head of the fine-tune in a place."""
        return with_state(self.tuned[place], {**self.tuned[place].state_dict(), **body})

    def score(self, model: nn.Module, place: int, split: str) -> float:
        """The accuracy of a model under the head of a task, on that task's ``validation`` or ``test`` images."""
        return accuracy(model, self.images(place, split))

    def inputs(self, place: int, count: int | None = None) -> list[Batch]:
        """The images that a task was fine-tuned on, without labels.

        Args:
            place: of the task.
            count: how many, drawn by the seed of the models, the same ones of every task; all in their order if None.
        """
        pixels, _ = self.images(place, "tuned")
        if count is not None:
            pixels = pixels[torch.randperm(len(pixels), generator=torch.Generator().manual_seed(self.seed))[:count]]
        return [{"pixel_values": part} for part in pixels.split(100 if count is None else count)]


class DigitsFamily(ImageFamily):
    """A base model and its fine-tunes, one for each of `TASKS`, each under a head that was fitted to the base model.

    Args:
        seed: of weights and order.
        folder: of the models; what is missing in it is trained.
    """

    names = tuple(task.name for task in TASKS)

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self._images = seed, splits()
        self.base, *self.tuned = family(seed, folder, self._images, self.body_tuned)

    def images(self, place: int, split: str) -> Images:
        """Images and labels of a task."""
        return TASKS[place].of(self._images[split])


class AdapterFamily(DigitsFamily):
    """The same with LoRA adapters (Hu et al., 2022) in place of the body, each kept as the whole model it makes."""

    @staticmethod
    def body_tuned(model: nn.Module, batches: Sequence[Images]) -> nn.Module:
        """The model with adapters that took a step on each batch, all else staying as it is."""
        options = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=ADAPTED)
        # So that the heads of the next tasks are drawn as if nothing were here.
        with torch.random.fork_rng(devices=[]):
            adapted = descended(get_peft_model(model, options), batches, len(batches), ADAPTER_RATE)
        whole: nn.Module = adapted.get_submodule("base_model").merge_and_unload()  # type: ignore[operator]
        return whole


def splits() -> dict[str, Images]:
    """Images for the base, for the fine-tunes, for validation and for the test."""
    data = Digits(val_size=VALIDATION)
    pixels, digits = data.train_set.pixel_values, data.train_set.labels
    return {
        "base": (pixels[:OF_BASE], digits[:OF_BASE]),
        "tuned": (pixels[OF_BASE:], digits[OF_BASE:]),
        "validation": (data.val_set.pixel_values, data.val_set.labels),
        "test": (data.test_set.pixel_values, data.test_set.labels),
    }


def family(
    seed: int, folder: Path, images: dict[str, Images], body_tuned: Callable[[nn.Module, Sequence[Images]], nn.Module]
) -> list[nn.Module]:
    """The base model and its fine-tunes, trained where they are not in the folder."""

    def trained() -> list[nn.Module]:
        base = pretrained(new_model(seed), images["base"], seed)
        torch.manual_seed(seed)
        return [base, *(fine_tuned(base, task.of(images["tuned"]), seed, body_tuned) for task in TASKS)]

    return kept(folder / f"{seed}.pt", lambda: [new_model(seed) for _ in range(1 + len(TASKS))], trained)


def kept(file: Path, blank: Callable[[], list[nn.Module]], trained: Callable[[], list[nn.Module]]) -> list[nn.Module]:
    """The models of a file, trained and kept there where it is missing.

    Args:
        file: of their states.
        blank: makes models of the same classes.
        trained: trains them.
    """
    if file.exists():
        models = blank()
        for model, state in zip(models, torch.load(file, weights_only=True), strict=True):
            model.load_state_dict(state)
        return [model.eval() for model in models]
    found = trained()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file, overwrite=True) as temporary:
        torch.save([model.state_dict() for model in found], temporary)
    return found


def new_model(seed: int) -> nn.Module:
    """A ViT of 4 layers, 64 wide, of 4 patches."""
    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, image_size=8, patch_size=4,
        num_channels=1, id2label=dict(enumerate("0123456789")),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTForImageClassification(config)


def pretrained(model: nn.Module, images: Images, seed: int, steps: int = 1200) -> nn.Module:
    """The base: which digit it is, of images that are turned, mirrored, moved, made negative and noisy at random."""
    draw = torch.Generator().manual_seed(seed)

    def number(below: int) -> int:
        return int(torch.randint(below, (), generator=draw))

    def batch() -> Images:
        parts = []
        for _ in range(4):
            chosen = torch.randint(len(images[0]), (32,), generator=draw)
            pixels = images[0][chosen].rot90(number(4) * number(2), (2, 3)).roll((0, 3, 4, 0)[number(4)], 2 + number(2))
            pixels = (pixels.flip(2) if number(2) else pixels) * (1 - 2 * number(2))
            parts.append((pixels + 0.3 * number(2) * torch.randn(pixels.shape, generator=draw), images[1][chosen]))
        return torch.cat([pixels for pixels, _ in parts]), torch.cat([digits for _, digits in parts])

    return descended(model, (batch() for _ in range(steps)), steps, 2e-3)


def fine_tuned(
    base: nn.Module,
    images: Images,
    seed: int,
    body_tuned: Callable[[nn.Module, Sequence[Images]], nn.Module],
    epochs: int = 6,
) -> nn.Module:
    """The base with a head that is fitted to it for a task and then stays, after some passes of the body."""
    model, draw = copy.deepcopy(base), torch.Generator().manual_seed(seed)
    head = model.get_submodule(HEAD.rstrip("."))
    assert isinstance(head, nn.Linear)
    head.reset_parameters()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(HEAD))
    descended(model, itertools.repeat(images, 60), 60, 3e-2)
    chosen = [part for _ in range(epochs) for part in torch.randperm(len(images[0]), generator=draw).split(64)]
    return body_tuned(model, [(images[0][part], images[1][part]) for part in chosen]).requires_grad_(True)


def descended(model: nn.Module, batches: Iterable[Images], steps: int, rate: float) -> nn.Module:
    """A model after as many steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    model.train()
    for pixels, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixel_values=pixels).logits, labels).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    """The share of images whose label is the likeliest class."""
    return float((model(pixel_values=images[0]).logits.argmax(-1) == images[1]).float().mean())
