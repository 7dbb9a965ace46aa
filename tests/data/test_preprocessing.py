"""Images are prepared as the image processors of transformers prepare them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from fusionlab.data.preprocessing import Preprocessing, preprocessing_of
from tests.data.colours import tokenizer

PROCESSORS: dict[str, Any] = {
    "both sides": lambda: transformers.ViTImageProcessor(size={"height": 16, "width": 16}),
    "not normalised": lambda: transformers.ViTImageProcessor(size={"height": 16, "width": 16}, do_normalize=False),
    "shorter side, cropped": lambda: transformers.CLIPImageProcessor(size={"shortest_edge": 20}, crop_size=16),
    "a share": lambda: transformers.ConvNextImageProcessor(size={"shortest_edge": 16}, crop_pct=0.8),
    "a share of a large image": lambda: transformers.ConvNextImageProcessor(size={"shortest_edge": 384}, crop_pct=0.8),
    "channels in the opposite order": lambda: transformers.MobileViTImageProcessor(
        size={"shortest_edge": 20}, crop_size={"height": 16, "width": 16}
    ),
}


def picture() -> Image.Image:
    """An image that is wider than high."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8))


def prepared(checkpoint: Path) -> torch.Tensor:
    """The picture as a data module has it."""
    return Preprocessing().completed(preprocessing_of(str(checkpoint))).transform(augment=False)(picture())


@pytest.mark.parametrize("name", PROCESSORS)
def test_images_are_those_of_the_processor(tmp_path: Path, name: str) -> None:
    processor = PROCESSORS[name]()
    processor.save_pretrained(tmp_path)
    expected = processor(picture(), return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(prepared(tmp_path), expected, rtol=1e-4, atol=1e-4)


def test_a_processor_of_images_and_texts(tmp_path: Path) -> None:
    """Its image processor stands in a file with it."""
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 20}, crop_size=16)
    transformers.CLIPProcessor(images, tokenizer()).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink(missing_ok=True)
    expected = images(picture(), return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(prepared(tmp_path), expected, rtol=1e-4, atol=1e-4)


def test_a_given_size_is_taken_whole(tmp_path: Path) -> None:
    """What the processor cuts off belongs to its own size."""
    transformers.CLIPImageProcessor(size={"shortest_edge": 20}, crop_size=16).save_pretrained(tmp_path)
    chosen = Preprocessing(image_size=8).completed(preprocessing_of(str(tmp_path)))
    assert (chosen.image_size, chosen.resize, chosen.interpolation) == (8, None, "bicubic")


def test_settings_of_odd_types_are_passed_over(tmp_path: Path) -> None:
    """Whatever the file says beside sizes and means."""
    told = {"size": 16, "crop_pct": "much", "resample": [2], "do_normalize": None, "do_flip_channel_order": "no"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    chosen = preprocessing_of(str(tmp_path))
    assert chosen == Preprocessing(image_size=16)
    assert prepared(tmp_path).shape == (3, 16, 16)
