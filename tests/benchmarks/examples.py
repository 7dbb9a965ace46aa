"""Tiny files in the shapes of the data sets that benchmarks read, and a tiny model of digits."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, ViTConfig, ViTForImageClassification

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def images(folder: Path) -> Path:
    """A few images of noise in CIFAR-10's shape."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for split, count in (("train", 40), ("test", 16)):
        rows = []
        for index in range(count):
            pixels = torch.randint(256, (32, 32, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(file := io.BytesIO(), "PNG")
            rows.append({"image": {"bytes": file.getvalue(), "path": None}, "label": index % 10})
        pd.DataFrame(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def text(path: Path) -> Path:
    """A text with three splits."""
    words = "to be or not to be that is the question " * 200
    pd.DataFrame([{"text": words, "split": split} for split in ("train", "validation", "test")]).to_parquet(path)
    return path


def word_tokenizer(folder: Path, words: Sequence[str]) -> str:
    """The folder of a tokenizer of some words, with all special tokens."""
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "sep", "mask")}
    vocabulary = {word: index for index, word in enumerate([*special.values(), *words])}
    split = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=split, **special).save_pretrained(folder)
    return str(folder)


def tiny_digits_model(folder: Path, seed: int, width: int, val_size: int | None) -> ViTForImageClassification:
    """A model of images of 8 x 8 that nobody trained, in the place of one that a benchmark keeps in a folder."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    config = ViTConfig(hidden_size=width, intermediate_size=8, num_channels=1, num_labels=10, **sizes)
    return ViTForImageClassification(config).eval()


def digit_images() -> dict[str, torch.Tensor]:
    """Twelve images of noise for them, with labels."""
    drawn = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn(12, 1, 8, 8, generator=drawn), "labels": torch.arange(12) % 10}
