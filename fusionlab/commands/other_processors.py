"""A note on models whose inputs are prepared otherwise, such as images with another mean and size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fusionlab.checkpoints.files import read_json
from fusionlab.checkpoints.hub import locate
from fusionlab.commands.console import tell
from fusionlab.errors import InputError

_FILES = ("preprocessor_config.json", "processor_config.json")
# What says by which code a file was written, and nothing of what is done to inputs.
_OF_CODE = {"auto_map", "processor_class", "transformers_version"}


def tell_other_processors(sources: Sequence[str], names: Sequence[str] | None = None, is_merged: bool = True) -> None:
    """Tell on standard error which models prepare images or sounds otherwise than the first that has a preprocessor.

    Args:
        sources: paths or hub ids of the models; what is no folder, or has no preprocessor, is passed over.
        names: to call them by; the sources themselves if None.
        is_merged: the models become one, which is written like the first; else each keeps what it has.
    """
    called = list(names or sources)
    found = {name: _settings(source) for name, source in zip(called, sources, strict=False)}
    known = {name: settings for name, settings in found.items() if settings}
    first = next(iter(known), None)
    if first is None:
        return
    kept = f"the merge keeps that of {first}" if first == called[0] else f"the merge has none, like {called[0]}"
    for name, settings in known.items():
        wanted = known[first]
        if keys := sorted(key for key in settings.keys() | wanted.keys() if settings.get(key) != wanted.get(key)):
            tell(
                f"The preprocessors of {name} and {first} differ ({', '.join(keys)}), so that inputs of one are not "
                f"those of the other; {kept if is_merged else 'each twin keeps its own'}."
            )


def _settings(source: str) -> dict[str, str]:
    """The settings of a model's preprocessor, by key; nothing where there are none that can be read."""
    try:
        location = locate(source)
        files = [location / name for name in _FILES if (location / name).is_file()]
        found = [dict(_flat(read_json(file))) for file in files]
    except InputError:
        # A model is refused by what reads it, in a sentence of its own; nothing here reads its preprocessor.
        return {}
    return {key: value for settings in found for key, value in settings.items()}


def _flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Keys with those around them, and what each is set to; what is set to nothing is as if it were not there."""
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{before}{key}.")
        elif value is not None and key not in _OF_CODE and not key.startswith("_"):
            # Fast and slow classes of one kind do the same.
            is_class = key.endswith("_type") and isinstance(value, str)
            found.append((f"{before}{key}", value.removesuffix("Fast") if is_class else json.dumps(value)))
    return found
