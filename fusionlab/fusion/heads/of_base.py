"""A base model under another head than its fine-tunes: encoders have the head of their pretraining, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from fusionlab import misfits
from fusionlab.dtypes import as_wide_as
from fusionlab.errors import InputError
from fusionlab.fusion.heads.parameters import base_module, head_parameters, prefix_of
from fusionlab.models import aliases, with_state

NAME = "the base model"


@dataclass(frozen=True)
class FittedBase:
    """A base model as one of its fine-tunes' class.

    Attributes:
        model: of that class; what the base lacks is the fine-tune's.
        lacking: the parameters that the base lacks: a head, or a pooler.
    """

    model: nn.Module
    lacking: frozenset[str] = frozenset()

    def known(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parameters of a state that the base has."""
        return {name: tensor for name, tensor in state.items() if name not in self.lacking}


def fitted_base(base: nn.Module, like: nn.Module) -> FittedBase:
    """A base model as a model of its fine-tunes' class, whatever head it has.

    Args:
        base: of the same class, or of one with the same body under another head, or the bare body; not modified.
        like: a fine-tune.

    Returns:
        The base model itself where it has the fine-tune's parameters, or differs from one of its class below the head,
        which is refused elsewhere.

    Raises:
        InputError: bodies of two classes, or that differ in a size or a shape.
    """
    state, given = like.state_dict(), base.state_dict()
    heads = {*head_parameters(like), *head_parameters(base)}
    differing = {name for name in {**state, **given} if _shape(state, name) != _shape(given, name)}
    if not differing or (type(base) is type(like) and not differing & heads):
        return FittedBase(base)
    own, theirs = base_module(like) or like, base_module(base) or base
    if type(own) is not type(theirs):
        raise InputError(
            f"{NAME} is a {type(base).__name__}, and a fine-tune a {type(like).__name__}; expected the model that they "
            f"come from, under any head"
        )
    configs = [getattr(one, "config", None) for one in (theirs, own)]
    if sizes := misfits.other_sizes(configs):
        raise InputError(f"{NAME} has another size than its fine-tunes ({sizes}); expected the one that they come from")
    body = _body(base)
    found, taken, tied = dict(state), set[str](), aliases(state)
    inner = {name: name.removeprefix(prefix_of(like)) for name in _body_names(like)}
    for name, known in inner.items():
        if known in body:
            if body[known].shape != state[name].shape:
                raise InputError(
                    f"the parameter {name!r} has shape {misfits.words_of(body[known].shape)} in {NAME}; expected "
                    f"shape {misfits.words_of(state[name].shape)} as in its fine-tunes"
                    f"{misfits.of_shapes([body[known].shape, state[name].shape], configs)}"
                )
            found[name] = body[known]
            taken.add(name)
    # A weight of the head that is the body's comes with it.
    taken |= {name for name, first in tied.items() if first in taken}
    found |= {name: found[first] for name, first in tied.items()}
    # In the base's type where that is wider, as its numbers are not to be rounded.
    return FittedBase(with_state(as_wide_as(like, [base]), found), frozenset(state.keys() - taken))


def _body(model: nn.Module) -> dict[str, Tensor]:
    """A body's parameters by their names in it."""
    state, prefix = model.state_dict(), prefix_of(model)
    return {name.removeprefix(prefix): state[name] for name in _body_names(model)}


def _body_names(model: nn.Module) -> list[str]:
    head = set(head_parameters(model))
    return [name for name in model.state_dict() if name not in head]


def _shape(state: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(state[name].shape) if name in state else None
