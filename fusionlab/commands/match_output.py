"""The table and the sentences that `fusionlab match` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from fusionlab import printing
from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.card import parent, twin_card
from fusionlab.checkpoints.hub import locate
from fusionlab.dtypes import name_of
from fusionlab.evaluation.wording import format_change
from fusionlab.growing import Growth, described
from fusionlab.matching.recipe import Recipe
from fusionlab.streaming import StoredModel

# What an alignment is called beside its twin.
ALIGNMENT_SUFFIX = ".alignment.safetensors"
ALIGNMENT = f"fusionlab{ALIGNMENT_SUFFIX}"
_GAUGED = ": of the models as given, in their common gauge, and matched (the change is from the second to the third)"


def alignment_file(place: Path, is_alone: bool) -> Path:
    """The file of the alignment of a twin.

    Args:
        place: the twin's folder.
        is_alone: it is the only twin; the alignments of others lie beside their folders.
    """
    return place / ALIGNMENT if is_alone else place.with_name(f"{place.name}{ALIGNMENT_SUFFIX}")


def card(
    name: str,
    model: Checkpoint | StoredModel,
    anchor: str,
    recipe: Recipe,
    seed: int,
    growth: Growth[Any] | None = None,
) -> str:
    """The card of a twin.

    Args:
        name: of the model that it is a twin of.
        model: that one.
        anchor: the name of the model whose basis it is in.
        recipe: how it was matched.
        seed: of anything random.
        growth: what was done to it before it was matched, if it was grown.
    """
    made = {"matching": str(recipe), "seed": str(seed)} | ({} if growth is None else {"grown": described(growth)})
    return twin_card(parent(name, model.location, locate(model.source)), anchor, made, model.format)


def types_note(words: str, dtype: torch.dtype | None) -> list[str]:
    """A sentence where end models are stored in different types; none where all agree.

    Args:
        words: which model is stored in which type, see `fusionlab.dtypes.differing`.
        dtype: that twins are written in, or None for each one's own.
    """
    if not words:
        return []
    kept = "each twin keeps its own; dtype chooses one for all" if dtype is None else f"twins are in {name_of(dtype)}"
    return [f"The end models are stored in different types ({words}): {kept}."]


def kept_basis_note(anchor: str, base: str) -> str:
    """A sentence on a base model that needs no twin."""
    return f"{anchor} keeps its basis, and with it {base}: use it as it is."


@dataclass(frozen=True)
class MadeTwin:
    """A twin that was written.

    Attributes:
        name: of the model.
        distances: to the anchor: as given, in the gauge, and matched.
        difference: of its logits, relative to the largest.
        seconds: that matching took.
    """

    name: str
    distances: tuple[float, float, float]
    difference: float
    seconds: float


class MatchTable:
    """The distances of models to an anchor, before and after, a row for each.

    Args:
        anchor: its name.
        gauged: whether models are brought into a gauge before they are matched.
    """

    def __init__(self, anchor: str, gauged: bool) -> None:
        self.anchor, self.gauged, self.rows = anchor, gauged, list[dict[str, object]]()
        self.table = Table(title=f"Distance to {anchor}", title_justify="left")
        self.table.add_column("model", overflow="fold")
        lengths = ("as given", "in the gauge", "matched") if gauged else ("before", "after")
        for heading in (*lengths, "change", "logits differ by", "seconds"):
            self.table.add_column(heading, justify="right", no_wrap=True)

    def add(self, name: str, distances: Sequence[float], difference: float, seconds: float) -> None:
        """Add a row.

        Args:
            name: of the model.
            distances: to the anchor: as given, in the gauge if there is one, and matched.
            difference: of the logits of the twin as it is stored, relative to the largest.
            seconds: that matching took.
        """
        stages = ("as_given", "in_the_gauge", "matched") if self.gauged else ("as_given", "matched")
        lengths = dict(zip(stages, distances, strict=True))
        self.rows.append({"model": name, "distance": lengths, "logits_differ_by": difference, "seconds": seconds})
        self.table.add_row(
            name,
            *(f"{distance:.4f}" for distance in distances),
            format_change(*distances[-2:]),
            "0" if difference == 0 else f"{difference:.1e}",
            f"{seconds:.2f}",
        )

    def tell(self, notes: Sequence[str], output: Path) -> None:
        """Print the table, and what is to be known about it, for people or for machines."""
        printing.publish({"anchor": self.anchor, "models": self.rows, "notes": list(notes), "output": str(output)})
        console = printing.results()
        console.print(self.table)
        console.print(
            f"Euclidean distance of all parameters{_GAUGED if self.gauged else ''}; logits on random inputs, relative "
            "to the largest.",
            style="dim",
        )
        for note in notes:
            console.print(note, highlight=False)
        console.print(f"Written to {output}", highlight=False, soft_wrap=True)
