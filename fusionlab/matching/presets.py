"""Documented choices of how to match by weights."""

from dataclasses import replace
from typing import Any

from fusionlab.errors import InputError
from fusionlab.matching.options import ALL, ANNEALED, GAUGES, MatchOptions, given

PRESETS: dict[str, MatchOptions] = {
    "none": MatchOptions(spaces=()),
    "paper": MatchOptions(spaces=("attention", "ffn"), rescale="sequential"),
    "weights": MatchOptions(spaces=(ALL,), rescale="off", gauge=GAUGES, relative=0.5, start=ANNEALED),
}


def preset(name: str, **changes: Any) -> MatchOptions:
    """A documented set of options, some of them changed.

    Args:
        name: one of `PRESETS`; `fusionlab.matching.recipe.MEANINGS` says what each does.
        changes: fields of `MatchOptions` in any way that `given` knows; None keeps the preset's value.

    Raises:
        InputError: a name or a value that does not exist.
    """
    if name not in PRESETS:
        raise InputError(f"matching preset {name!r} does not exist; expected one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **given(changes))
