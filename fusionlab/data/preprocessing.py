"""Preprocessing of images: size, channels, normalisation and augmentation."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from torchvision.transforms import v2

from fusionlab.checkpoints.files import CONFIG, read_json
from fusionlab.errors import InputError
from fusionlab.paths import expanded

_PREPROCESSOR = "preprocessor_config.json"
# Of models that take texts too; the image processor is a part of it.
_PROCESSOR = "processor_config.json"
# Pillow's numbers of ways to resize; others are bilinear here.
_WAYS = {0: "nearest-exact", 1: "bicubic", 3: "bicubic"}
# From this side on ConvNeXt's images are squashed, below it they are cropped.
_SQUASHED = 384
# In pixels, some ten times the sides of the largest images that any model looks at.
_LARGEST_SIDE = 2**14


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Size and normalisation of images; None where nothing was said."""

    image_size: int | None = None
    """Height and width in pixels."""
    channels: int = 3
    """1 (grey) or 3 (colour)."""
    mean: Sequence[float] | None = None
    """Mean of each channel, of pixels from 0 to 1."""
    std: Sequence[float] | None = None
    """Standard deviation of each channel, of pixels from 0 to 1."""
    resize: int | None = None
    """The shorter side in pixels, or both, that images have before the middle is taken; `image_size` if None."""
    squash: bool = False
    """True if both sides are brought to that size, which keeps all of an image and not its proportions."""
    interpolation: str = "bilinear"
    """The way to resize, as torchvision calls it."""
    flip_channels: bool = False
    """True if red, green and blue come in the opposite order."""

    def completed(self, fallback: "Preprocessing | None") -> "Preprocessing":
        """These values, then those of `fallback`, then 0.5 for mean and deviation.

        Args:
            fallback: what a checkpoint's preprocessor says, if there is one.

        Returns:
            Preprocessing with a mean and a deviation for each channel.

        Raises:
            InputError: not 1 or 3 channels, another number of means or deviations, or a deviation that is not above 0.
        """
        if self.channels not in (1, 3):
            raise InputError(f"data.channels is {self.channels}, but 1 or 3 was expected")
        fallback = fallback or Preprocessing()
        mean = self.mean or fallback.mean or [0.5] * self.channels
        std = self.std or fallback.std or [0.5] * self.channels
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, self.channels):
                raise InputError(f"data.{name} has {len(values)} values, but there are {self.channels} channels")
        if not all(value > 0 for value in std):
            raise InputError(f"data.std is {list(std)}, but values above 0 were expected")
        resize = None if self.image_size else fallback.resize
        size = self.image_size or fallback.image_size
        return dataclasses.replace(fallback, image_size=size, channels=self.channels, mean=mean, std=std, resize=resize)

    def transform(self, augment: bool) -> Callable[[Image], Tensor]:
        """The function from an image to a normalised tensor of shape ``(channels, image_size, image_size)``.

        Args:
            augment: also mirror half of the images and, where a size is given, shift by up to an eighth of it.

        Returns:
            The function.
        """
        # Cropping pads with the edge's own colours, so that no border appears that test images never show.
        steps: list[Any] = [v2.RGB() if self.channels == 3 else v2.Grayscale(), v2.ToImage()]
        if self.image_size is not None:
            side = self.resize or self.image_size
            how = v2.InterpolationMode(self.interpolation)
            steps.append(v2.Resize([side, side] if self.squash else side, how, antialias=True))
            steps.append(v2.CenterCrop(self.image_size))
        if self.flip_channels and self.channels == 3:
            steps.append(v2.Lambda(_flipped))
        if augment:
            if self.image_size is not None:
                steps.append(v2.RandomCrop(self.image_size, padding=self.image_size // 8, padding_mode="edge"))
            steps.append(v2.RandomHorizontalFlip())
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(self.mean or []), list(self.std or []))]
        return v2.Compose(steps)


def preprocessing_of(checkpoint: str) -> Preprocessing:
    """Size and normalisation that a checkpoint's own files ask for.

    Args:
        checkpoint: a folder with ``preprocessor_config.json`` or ``processor_config.json`` (transformers), or with a
            ``config.json`` of timm.

    Returns:
        What they say.

    Raises:
        InputError: neither file is there, or they are damaged.
    """
    folder = expanded(checkpoint)
    if (folder / _PREPROCESSOR).is_file():
        return _of_transformers(folder / _PREPROCESSOR, read_json(folder / _PREPROCESSOR))
    if (folder / _PROCESSOR).is_file():
        content = read_json(folder / _PROCESSOR).get("image_processor")
        if isinstance(content, dict):
            return _of_transformers(folder / _PROCESSOR, content)
    if (folder / CONFIG).is_file():
        described = read_json(folder / CONFIG).get("pretrained_cfg")
        if isinstance(described, dict) and "input_size" in described:
            return _checked(folder / CONFIG, described["input_size"], described.get("mean"), described.get("std"))
    raise InputError(
        f"{checkpoint} has no {_PREPROCESSOR} and no timm {CONFIG}; give data.image_size, mean and std instead"
    )


def _of_transformers(file: Path, content: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing that an image processor's settings say; what they leave out is as most processors have it."""
    size, crop = content.get("size"), content.get("crop_size") if content.get("do_center_crop") else None
    if content.get("do_resize") is False:
        size = None
    squash = isinstance(size, dict) and "height" in size
    side, cropped = _side(size), _side(crop)
    found = _checked(file, side if cropped is None else cropped, content.get("image_mean"), content.get("image_std"))
    # Processors that turn the channels round (MobileViT) leave them as they are unless told otherwise.
    flips = content.get("do_flip_channel_order") is True
    if content.get("do_normalize", not flips) is False:
        found = dataclasses.replace(found, mean=[0.0], std=[1.0])
    resize = None if cropped is None else _checked(file, side, None, None).image_size
    share: Any = content.get("crop_pct")
    is_shared = _is_number(share) and 0 < share <= 1 and isinstance(size, dict) and "shortest_edge" in size
    if is_shared and found.image_size is not None:
        squash = found.image_size >= _SQUASHED
        resize = None if squash else int(found.image_size / share)
    way = content.get("resample")
    known = _WAYS.get(way) if isinstance(way, int) else None
    return dataclasses.replace(
        found,
        resize=resize,
        squash=squash,
        interpolation=known or Preprocessing.interpolation,
        flip_channels=flips,
    )


def _side(size: Any) -> Any:
    """One side of a size, however it is written."""
    return (size.get("height") or size.get("shortest_edge")) if isinstance(size, dict) else size


def _flipped(image: Tensor) -> Tensor:
    """An image whose channels come in the opposite order."""
    return image.flip(-3)


def _checked(file: Path, size: Any, mean: Any, std: Any) -> Preprocessing:
    """Size and normalisation as a file tells them, which may tell anything; of several sides the last counts."""
    size = size[-1] if isinstance(size, list) and size else size
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST_SIDE):
        raise InputError(f"{file}: the size of images is {_short(size)}; expected pixels, from 1 to {_LARGEST_SIDE:,}")
    for name, values in (("mean", mean), ("standard deviation", std)):
        if values is not None and not (isinstance(values, list) and values and all(map(_is_number, values))):
            raise InputError(f"{file}: the {name} of images is {_short(values)}; expected a number for each channel")
    if std is not None and not min(std) > 0:
        raise InputError(f"{file}: the standard deviation of images is {_short(std)}; expected numbers above 0")
    return Preprocessing(image_size=size, mean=mean, std=std)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _short(value: object) -> str:
    return repr(value)[:100]
