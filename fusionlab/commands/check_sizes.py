"""Memory and disk that `fuse` and `match` take of models of different sizes, before any number is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionlab.commands import match_stream
from fusionlab.commands.check_ways import Given, Way, match_ways
from fusionlab.commands.match_parts import NotByPartsError, made_of, refuse_timm
from fusionlab.errors import InputError
from fusionlab.growing.factors import Choice
from fusionlab.growing.growth import numbers_of, side_by_side
from fusionlab.growing.layers import lists_of, placements
from fusionlab.growing.several import to_one_size
from fusionlab.printing import size_words
from fusionlab.streaming import StoredModel
from fusionlab.streaming.filled import FillingParts
from fusionlab.streaming.grown import GrowingParts
from fusionlab.streaming.larger import Larger, larger
from fusionlab.symmetry import SymmetryError
from fusionlab.symmetry.any_model import blueprint


@dataclass(frozen=True)
class Sizes:
    """A forecast of what becomes of models of different sizes.

    Attributes:
        grown: names of those that grow.
        memory: bytes that growing and filling hold a part at a time; None where they hold whole models.
        disk: bytes of the disk that they take meanwhile.
        matching: a row for each preset, of models that have one size then.
    """

    grown: list[str]
    memory: int | None
    disk: int
    matching: list[Way]

    @property
    def note(self) -> str:
        """A sentence on what growing takes."""
        words = f"fusionlab fuse and match grow {' and '.join(self.grown)} first"
        if self.memory is None:
            return f"{words}, in memory."
        held, taken = size_words(self.memory), size_words(self.disk)
        return f"{words}, a part at a time: about {held} of memory, and {taken} of the disk meanwhile."


def of_sizes(models: Mapping[str, StoredModel]) -> Sizes | None:
    """Memory and disk that `fuse` and `match` take of models of different sizes.

    Args:
        models: by name; none is a base model.

    Returns:
        None where they are of one size, or where it is not known how they become so.
    """
    try:
        refuse_timm(models)
        made = made_of(models)
        like, names = to_one_size({name: one.model for name, one in made.items()})
        grown = {name: larger(models[name], like) for name in names}
        both = {name: one for name, one in grown.items() if one is not None}
        if not names or len(both) < len(names):
            return None
        steps = [_step(one) for one in both.values()]
        every = {**made, **{name: one.large for name, one in both.items()}}
        described = blueprint(next(iter(both.values())).large.model)
    except (InputError, SymmetryError, NotByPartsError):
        return None
    sizes = tuple(models[name].main_dtype.itemsize * numbers_of(one.model) for name, one in every.items())
    given = Given(sizes, len(models), frozenset(), False, {}, described, every, True)
    largest = max(model.size for model in models.values())
    if largest < match_stream.IN_MEMORY:
        return Sizes(names, None, 0, match_ways(given))
    written = [sum(tensor.size for tensor in step.growing.planned().values()) for step in steps]
    # Where all grow, each is filled from one that has grown, and lies beside what it was before that.
    again = max(written) if len(names) == len(models) else 0
    memory, disk = max(step.memory for step in steps), sum(written) + again + max(step.beside for step in steps)
    return Sizes(names, memory, disk, match_ways(given))


def _step(both: Larger) -> FillingParts:
    """The growth of one model, filled from another of its larger architecture."""
    small, large = both.small.model, both.large.model
    embedding = side_by_side(small, large, placements(small, large, None, lists_of(blueprint(small).stacks)))
    growing = GrowingParts(embedding, both.small, both.large, both.stored.dtypes)
    return FillingParts(growing, embedding.widening(Choice()), both.large)
