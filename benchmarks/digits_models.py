"""ViTs on scikit-learn's digits, trained once and kept in a folder; images to match and to test them with."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import seed_everything
from settings import Batch, batches
from torch import nn
from torch.utils.data import DataLoader

import fusionlab
import fusionlab.tasks
from fusionlab import configs
from fusionlab.data import Digits
from fusionlab.trainers import quiet_trainer


@functools.cache
def digits_model(
    seed: int,
    width: int = 64,
    classes: tuple[int, ...] | None = None,
    layers: int = 4,
    epochs: int | None = None,
    val_size: int | None = None,
) -> nn.Module:
    """An end model of the demo's config, of another seed, size, set of digits, number of epochs or of images."""
    settings = yaml.safe_load(configs.resolve("vit_digits.yaml").read_text(encoding="utf-8"))
    task = settings["model"]["init_args"]
    task["model"] |= {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    seed_everything(seed, verbose=False)
    module = fusionlab.tasks.ImageClassification(**task)
    given = settings["data"]["init_args"] | {"classes": None if classes is None else list(classes)}
    data = Digits(**given | ({} if val_size is None else {"val_size": val_size}))
    epochs = epochs or settings["trainer"]["max_epochs"]
    quiet_trainer(max_epochs=epochs, accelerator="cpu", limit_val_batches=0).fit(module, datamodule=data)
    return module.model.eval()


def kept_model(folder: Path, seed: int, **how: Any) -> nn.Module:
    """An end model of `digits_model`, trained where it is not in the folder.

    Args:
        folder: of all these models.
        seed: of its weights and of the order of its images.
        how: arguments of `digits_model`.
    """
    place = folder / "_".join([f"seed_{seed}", *(f"{name}_{_word(value)}" for name, value in how.items() if value)])
    if not place.exists():
        fusionlab.save(digits_model(seed, **how), place)
    model: nn.Module = fusionlab.load(place)
    return model.eval()


def _word(value: Any) -> str:
    return f"{value[0]}_to_{value[-1]}" if isinstance(value, tuple) else str(value)


def digits() -> tuple[DataLoader[Any], list[Batch]]:
    """Training images to look at, and the test set."""
    data = Digits(val_size=0)
    return data.train_dataloader(), batches(data.test_dataloader(), labels=True)
