"""The way on where two models do not fit: other numbers of classes, other vocabularies, other heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusionlab.errors import InputError

# Entries of a config that say how wide, deep or divided a model is, and no more.
_SIZE = re.compile(
    r"hidden_sizes?|intermediate_size|embed_dim|d_(model|ff|kv)|n_(embd|layers?|heads?|inner)|dim|depth|"
    r"(head|ffn|.*_ffn)_dim|num_.*experts|.*_layers|.*_heads"
)
# Entries that say where a model came from.
_NAMING = re.compile(r"_?name_or_path|transformers_version|(torch_)?dtype|_.*")
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
        (classes_of, OTHER_HEADS),
        (_vocabulary, "fusionlab vocab gives models of different vocabularies one"),
    ):
        sizes = [key(config) for config in configs]
        if sizes[0] != sizes[1] and all(size in shape for size, shape in zip(sizes, shapes, strict=True)):
            return f" ({'classes' if key is classes_of else 'tokens'}: {sizes[0]} and {sizes[1]}; {words})"
    return of_sizes(configs)


def of_labels(names: Sequence[str], configs: Sequence[Any]) -> str | None:
    """A sentence on labels that two models have in another order, so that rows of their heads mean different classes.

    Args:
        names: of the two models, for messages.
        configs: of them, as objects or mappings.

    Returns:
        None where the order is one, or where the labels are not the same.
    """
    one, other = map(label_names, configs)
    if one == other or sorted(one) != sorted(other):
        return None
    return (
        f"{names[0]} and {names[1]} have the same labels in another order ({some(one)} and {some(other)}), so that "
        f"rows of their heads mean different classes; expected one order (fuse --heads union joins classifiers by "
        f"label)"
    )


def some(labels: Sequence[str]) -> str:
    """The first of some labels, with commas between them."""
    return ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")


def unnamed(names: Sequence[str]) -> bool:
    """True if these are numbers instead of names, as transformers gives to classes that nobody named."""
    return all(name in (str(index), f"LABEL_{index}") for index, name in enumerate(names))


def label_names(config: Any) -> list[str]:
    """The names of a classifier's labels, in order; nothing where a config names none.

    Args:
        config: of transformers or timm, as an object or a mapping.
    """
    found = _entry(config, "id2label")
    if not isinstance(found, Mapping):
        # Of timm, in a module or in a file.
        of_timm = _entry(config, "pretrained_cfg")
        listed = _entry(config, "label_names") or (_entry(of_timm, "label_names") if of_timm is not None else None)
        return [str(name) for name in listed] if isinstance(listed, list | tuple) else []
    places = sorted(found, key=lambda place: int(place) if str(place).isdigit() else 0)
    return [str(found[place]) for place in places]


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


def of_entries(configs: Sequence[Any]) -> str:
    """The first entry in which two configs differ, names and types of numbers aside, as a part of a sentence.

    Args:
        configs: of two models, as objects or mappings.
    """
    one, other = (config if isinstance(config, Mapping) else vars(config) for config in configs)
    for name in one:
        values = [_entry(config, name) for config in (one, other)]
        is_plain = not _NAMING.fullmatch(str(name)) and all(isinstance(value, str | int | float) for value in values)
        if is_plain and values[0] != values[1]:
            return f"configs that differ in {name} ({values[0]} and {values[1]})"
    return "different configs (the number of attention heads, for example)"


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


def classes_of(config: Any) -> int | None:
    """The number of classes that a model tells apart; None where its config does not say.

    Args:
        config: of transformers or timm, as an object or a mapping.
    """
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


def refuse_other_classes(data: str, names: Sequence[str] | None, class_names: Sequence[str]) -> None:
    """Refuse data whose classes are not those of the head, in its order; numbers without names may be any of them.

    Args:
        data: name of the data.
        names: of their classes; None where they have none.
        class_names: of the head.

    Raises:
        InputError: names the first class that differs.
    """
    if names is None or list(names) == list(class_names) or (len(names) <= len(class_names) and unnamed(names)):
        return
    pairs = zip([*names, *[None] * len(class_names)], [*class_names, *[None] * len(names)], strict=False)
    index, (found, expected) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    raise InputError(
        f"class {index} of the data {data} is {found!r}, but {expected!r} of the model; "
        f"expected the same labels in the same order"
    )
