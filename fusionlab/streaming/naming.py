"""One set of names for models whose files have different names for the same parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusionlab.streaming.known import is_known
from fusionlab.streaming.stored import StoredModel, StoredTensor

TYPE_CHECKING = False  # what reads the tables of transformers imports it
if TYPE_CHECKING:
    from fusionlab.checkpoints.conversions import Group


def under_one_naming(models: Sequence[StoredModel]) -> list[StoredModel]:
    """The models with their tensors under the first one's names, where those are known to be the same parameters.

    transformers reads several names for one parameter: older ones, or without the prefix of a body. By its tables a
    tensor of one file is the same as one of another.

    Args:
        models: in any order; those that have the first one's names, or are of a class that transformers does not know,
            are given back as they are, and so is one that is stored in another way.
    """
    first, *others = models
    return [first, *(_renamed(other, first) if _may_differ(other, first) else other for other in others)]


def _may_differ(other: StoredModel, first: StoredModel) -> bool:
    """True if names differ, and transformers may know why."""
    names = other.tensors.keys() != first.tensors.keys()
    types = {model.config.get("model_type") for model in (other, first)}
    return names and first.format == other.format == "transformers" and len(types) == 1 and is_known(first)


def _renamed(other: StoredModel, first: StoredModel) -> StoredModel:
    """A model with its tensors under the names of another one; as it is where there are none for all."""
    found = _groups(other), _groups(first)
    if not found[0] or found[0].keys() != found[1].keys():
        return other
    tensors: dict[str, StoredTensor] = {}
    for made, own in found[1].items():
        theirs = found[0][made]
        if _kind(theirs) != _kind(own):
            return other
        tensors |= {name: other.tensors[held] for name, held in zip(own.stored, theirs.stored, strict=True)}
    return replace(other, tensors={name: tensors[name] for name in first.tensors})


def _kind(group: Group) -> list[str | None]:
    """The way in which each tensor becomes part of a parameter."""
    return [None if group.conversion is None else group.conversion.patterns[name] for name in group.stored]


def _groups(model: StoredModel) -> dict[tuple[str, ...], Group]:
    """Groups of a model's tensors by the parameters that they become; none where that is not known."""
    from fusionlab.streaming.classes import class_of  # noqa: PLC0415 - takes longer than most merges

    made = class_of(model)
    return {} if made is None else {group.made: group for group in made.groups.values()}
