"""Models of several sizes, grown to one: the largest of all in every dimension."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from fusionlab.growing.growth import Growth, grown
from fusionlab.growing.layers import layer_stacks
from fusionlab.growing.target import LABELS
from fusionlab.inputs import Batches
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.axes import Fixed
from fusionlab.types import Model


def grown_to_one_size(
    models: Mapping[str, Model], data: Batches | None = None, fill: bool = False, like: Any = None
) -> dict[str, Growth[Model]]:
    """The growths of those models that are smaller than another in some dimension, or than what is asked for.

    All become as large as the largest of them in each dimension: as one of them where one is, else by a config of
    transformers with the larger of any two sizes.

    Args:
        models: by name; not modified.
        data: batches of inputs that all take, to find where layers go by; see `grown` for where they go without.
        fill: whether what is new and changes nothing is taken from the model that is grown to, or where there is none
            from the one before (see `filling`): for models that will be matched.
        like: a model or a config that all become as large as, in place of the largest of them.

    Returns:
        By name, for models that grow; nothing where all are of one size already, or of different classes.

    Raises:
        InputError: sizes that cannot become one, see `grown`.
    """
    like, smaller = to_one_size(models, like)
    if isinstance(like, nn.Module):
        return {name: grown(models[name], like, data, fill) for name in smaller}
    found = {name: grown(models[name], like) for name in smaller}
    if fill:
        for name, other in before(smaller).items():
            found[name] = grown(models[name], found[other].model, fill=True)
    return found


def to_one_size(models: Mapping[str, nn.Module], like: Any = None) -> tuple[Any, list[str]]:
    """The model or config that models become as large as, and the names of those that grow.

    Args:
        models: by name; no number of theirs is looked at.
        like: a model or a config that all become as large as, in place of the largest of them.
    """
    everyone = list(models.values())
    if like is None:
        if not differ_in_size(everyone):
            return None, []
        like = _largest(everyone)
    if not isinstance(like, nn.Module):
        return like, list(models)
    return like, [name for name, model in models.items() if _differ_in_size(model, like)]


def before(names: Sequence[str]) -> dict[str, str]:
    """By name the one before it, of the first the last: what each is filled from where all have grown."""
    return dict(zip(names, [*names[-1:], *names[:-1]], strict=True))


def differ_in_size(models: Sequence[nn.Module]) -> bool:
    """True of models of one class of which one has other layers, or is wider along some space, than another."""
    return len({type(model) for model in models}) == 1 and any(_differ_in_size(models[0], m) for m in models[1:])


def told(growths: Mapping[str, Growth[Any]]) -> str:
    """A sentence, without its full stop, on which models were grown and by how much."""
    parts = [f"{name} ({described(growth)}; {_dearer(growth)})" for name, growth in growths.items()]
    worst = max(growth.exact for growth in growths.values())
    return (
        f"The end models are of different sizes, so that {' and '.join(parts)} {'was' if len(parts) == 1 else 'were'} "
        f"grown; logits in float64 differ by {worst:.0e} of the largest"
        + "".join(f". {note.removesuffix('.')}" for note in dict.fromkeys(n for g in growths.values() for n in g.notes))
    )


def described(growth: Growth[Any]) -> str:
    """The sizes that grew, in words."""
    sizes = [f"{role} {size_range(few)} to {size_range(many)}" for role, (few, many) in growth.sizes.items()]
    layers = [f"layers {len(stack.positions)} to {stack.length}" for stack in growth.placements]
    return ", ".join([*sizes, *dict.fromkeys(layers)])


def _dearer(growth: Growth[Any]) -> str:
    """The cost of a grown model in multiples of the small one's, in words."""
    numbers, operations = (after / max(before, 1) for before, after in (growth.parameters, growth.operations))
    return f"{numbers:.1f} times the parameters, {operations:.1f} times the operations of a pass"


def size_range(ends: tuple[int, int]) -> str:
    """The smallest and the largest size of a kind of space, in words; one number where they are the same."""
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


def _differ_in_size(model: nn.Module, other: Any) -> bool:
    """Two models of one class have another number of layers, or parameters longer along some space."""
    if not isinstance(other, nn.Module):
        return True
    if layer_stacks(model) != layer_stacks(other):
        return True
    state, reference = model.state_dict(), other.state_dict()
    different = [name for name in state if name in reference and state[name].shape != reference[name].shape]
    if not different:
        return False
    axes = blueprint(model).by_name()
    return any(
        ours != theirs and not isinstance(axis, Fixed)
        for name in different
        for axis, ours, theirs in zip(axes[name], state[name].shape, reference[name].shape, strict=True)
    )


def _largest(models: Sequence[nn.Module]) -> Any:
    """A model that is as large as any in every dimension, or a config of one."""
    biggest = max(models, key=lambda model: sum(parameter.numel() for parameter in model.parameters()))
    config: Any = getattr(biggest, "config", None)
    if not hasattr(config, "to_dict"):
        return biggest
    combined = copy.deepcopy(config)
    for model in models:
        _raise(combined, model.config)
    return biggest if combined.to_dict() == config.to_dict() else combined


def _raise(config: Any, other: Any) -> None:
    """Make every size in a config at least that of another config, in place."""
    for name, theirs in vars(other).items():
        ours = vars(config).get(name)
        if name in LABELS or name.startswith("_") or name.endswith("_id"):
            continue
        if hasattr(ours, "to_dict") and type(ours) is type(theirs):
            _raise(ours, theirs)
        elif _is_size(ours) and _is_size(theirs):
            setattr(config, name, max(ours, theirs))
        elif isinstance(ours, list) and isinstance(theirs, list):
            if len(theirs) > len(ours):
                setattr(config, name, copy.deepcopy(theirs))
            elif len(ours) == len(theirs) and all(map(_is_size, (*ours, *theirs))):
                setattr(config, name, [max(pair) for pair in zip(ours, theirs, strict=True)])


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
