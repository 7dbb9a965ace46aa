"""fusionlab: match transformers in weight space without changing what they compute, and merge them into one.

>>> import fusionlab
>>> a, b = fusionlab.load("path/to/a"), fusionlab.load("path/to/b")
>>> twin = fusionlab.match(a, b).apply(a)          # the same function, in b's basis
>>> merged = fusionlab.merge([twin, b])            # or in one call: fusionlab.fuse([a, b], "paper", anchor=1)
>>> fusionlab.save(merged, "path/to/merged", like="path/to/b")
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all else that the command does before it runs
if TYPE_CHECKING:
    from typing import Any

    from fusionlab.api import advise, align, alignments, barrier, blueprint, canonical, fuse, grow, match, merge, shrink
    from fusionlab.checkpoints import load, save
    from fusionlab.errors import InputError
    from fusionlab.fusion import FusionData, FusionModule
    from fusionlab.matching.recipe import recipe
    from fusionlab.symmetry import Alignment, Blueprint, SymmetryError

    __version__: str

__all__ = [
    "Alignment",
    "Blueprint",
    "FusionData",
    "FusionModule",
    "InputError",
    "SymmetryError",
    "advise",
    "align",
    "alignments",
    "barrier",
    "blueprint",
    "canonical",
    "fuse",
    "grow",
    "load",
    "match",
    "merge",
    "recipe",
    "save",
    "shrink",
]

_HOMES = {
    "fusionlab.api": (
        "advise",
        "align",
        "alignments",
        "barrier",
        "blueprint",
        "canonical",
        "fuse",
        "grow",
        "match",
        "merge",
        "shrink",
    ),
    "fusionlab.checkpoints": ("load", "save"),
    "fusionlab.errors": ("InputError",),
    "fusionlab.fusion": ("FusionData", "FusionModule"),
    "fusionlab.matching.recipe": ("recipe",),
    "fusionlab.symmetry": ("Alignment", "Blueprint", "SymmetryError"),
}


if not TYPE_CHECKING:  # a type checker takes a module with this function for one that has any name

    def __getattr__(name: str) -> Any:
        # Imported when first used: torch and transformers take seconds, and `fusionlab --help` needs neither.
        import importlib  # noqa: PLC0415

        if name == "__version__":
            from importlib import metadata  # noqa: PLC0415

            try:
                return metadata.version("fusionlab")
            except metadata.PackageNotFoundError:
                # Source files that nobody installed.
                return "0+unknown"
        for home, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module 'fusionlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
