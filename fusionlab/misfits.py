"""The way on where two models do not fit: other numbers of classes, other vocabularies, other heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OTHER_HEADS = "fuse --heads own merges what lies below different heads, and --heads union classifiers of one task"


def of_shapes(shapes: Sequence[Sequence[int]], configs: Sequence[Any]) -> str:
    """The way on where a parameter has two shapes, as the end of a sentence; empty where nothing is known.

    Args:
        shapes: of the parameter in each of two models.
        configs: of the models, as objects or mappings.
    """
    for key, words in (
        (_labels, OTHER_HEADS),
        (_vocabulary, "fusionlab vocab gives models of different vocabularies one"),
    ):
        sizes = [key(config) for config in configs]
        if sizes[0] != sizes[1] and all(size in shape for size, shape in zip(sizes, shapes, strict=True)):
            return f" ({'classes' if key is _labels else 'tokens'}: {sizes[0]} and {sizes[1]}; {words})"
    return ""


def _labels(config: Any) -> int | None:
    found = _entry(config, "id2label")
    if isinstance(found, Mapping):
        return len(found)
    counted = _entry(config, "num_labels") or _entry(config, "num_classes")
    return counted if isinstance(counted, int) else None


def _vocabulary(config: Any) -> int | None:
    # Of models of images and words, that of the words.
    for part in (config, _entry(config, "text_config")):
        if isinstance(found := _entry(part, "vocab_size"), int):
            return found
    return None


def _entry(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
