"""The way on where two models do not fit: other numbers of classes, other vocabularies, other heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Entries of a config that say how wide, deep or divided a model is, and no more.
_SIZE = re.compile(
    r"hidden_sizes?|intermediate_size|embed_dim|d_(model|ff|kv)|n_(embd|layers?|heads?|inner)|dim|depth|"
    r"(head|ffn|.*_ffn)_dim|num_.*experts|.*_layers|.*_heads"
)
_SHOWN = 3
_DEFAULT_LABELS = 2
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
    return of_sizes(configs)


def of_sizes(configs: Sequence[Any]) -> str:
    """The way on where models of one architecture have other widths, layers or heads, as the end of a sentence.

    Args:
        configs: of two models, as objects or mappings.

    Returns:
        Nothing where no size is known to differ.
    """
    shown = other_sizes(configs)
    way = "fusionlab fuse grows the smaller one and matches them, and fusionlab grow writes it alone"
    return f" ({shown}; {way})" if shown else ""


def other_sizes(configs: Sequence[Any]) -> str:
    """The sizes that differ in the configs of two models of one type, with their values; empty where none is known to.

    Args:
        configs: of two models, as objects or mappings.
    """
    kinds = [_entry(config, "model_type") for config in configs]
    differing = list(_sizes(*configs)) if kinds[0] == kinds[1] is not None else []
    return ", ".join(f"{name}: {one} and {other}" for name, one, other in differing[:_SHOWN])


def words_of(shape: Sequence[int]) -> str:
    """A shape, as sentences have it."""
    return " x ".join(map(str, shape)) or "of a scalar"


def _sizes(one: Any, other: Any) -> Iterator[tuple[str, int, int]]:
    """The sizes that differ in two configs, those of their parts too."""
    names = one if isinstance(one, Mapping) else vars(one) if hasattr(one, "__dict__") else ()
    for name in names:
        first, second = _entry(one, name), _entry(other, name)
        if all(isinstance(value, int) and not isinstance(value, bool) for value in (first, second)):
            if first != second and _SIZE.fullmatch(name):
                yield name, first, second
        elif str(name).endswith("_config") and first is not None and second is not None:
            yield from _sizes(first, second)


def _labels(config: Any) -> int | None:
    found = _entry(config, "id2label")
    if isinstance(found, Mapping):
        return len(found)
    counted = _entry(config, "num_labels") or _entry(config, "num_classes")
    if isinstance(counted, int):
        return counted
    # A file of transformers leaves out what is as by default: two labels.
    names = _entry(config, "architectures")
    is_classifier = isinstance(names, list | tuple) and any("Classification" in str(name) for name in names)
    return _DEFAULT_LABELS if is_classifier else None


def _vocabulary(config: Any) -> int | None:
    # Of models of images and words, that of the words.
    for part in (config, _entry(config, "text_config")):
        if isinstance(found := _entry(part, "vocab_size"), int):
            return found
    return None


def _entry(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
