"""Task vectors: what fine-tuning changed, ``tau_i = theta_i - theta_base`` (Ilharco et al., 2023)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients, working_type
from fusionlab.merging.kinds import PerModel
from fusionlab.types import State


def base_of(ingredients: Ingredients) -> State:
    """The base model, which every method that asks for it has."""
    assert ingredients.base is not None
    return ingredients.base


def task_vectors(ingredients: Ingredients, name: str) -> Tensor:
    """The change of one parameter in each model, shape ``(models, *shape)``, in float32 or better."""
    base = base_of(ingredients)[name]
    first = ingredients.states[0][name]
    device, dtype = first.device, working_type(first)
    return torch.stack([state[name].to(device, dtype) - base.to(device, dtype) for state in ingredients.states])


def flattened(changes: Tensor) -> Tensor:
    """Task vectors of one parameter as rows, shape ``(models, numbers)``, of a single number or none too."""
    return changes.reshape(len(changes), changes[0].numel())


def add_to_base(ingredients: Ingredients, change: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """The base model with a change added to every floating-point parameter and buffer, in the first model's types.

    Args:
        change: for a parameter's name, what to add, in float32 or better.

    Raises:
        InputError: integer buffers differ between the models.
    """
    base = base_of(ingredients)

    def moved(name: str) -> Tensor:
        added = change(name)
        return base[name].to(added) + added

    return ingredients.each(moved)


def weighted_sum(stacked: Tensor, weights: Sequence[float]) -> Tensor:
    """``sum_i w_i stacked_i`` over the first dimension."""
    total = stacked[0] * weights[0]
    for row, weight in zip(stacked[1:], weights[1:], strict=True):
        total.add_(row, alpha=weight)
    return total


def disjoint_mean(changes: Tensor, weights: Sequence[float]) -> Tensor:
    """Elect a sign for every entry, then average the models that agree with it (Yadav et al., 2023, section 3).

    The elected sign is that of the weighted sum; the mean is taken over entries of that sign, by weight. Where the
    changes cancel exactly no sign is elected and nothing changes.

    Args:
        changes: trimmed task vectors, shape ``(models, *shape)``; zeros take no part.
        weights: one for each model.

    Returns:
        Shape ``(*shape)``.
    """
    return agreeing_mean(changes, weights, weighted_sum(changes, weights).sign_())


def agreeing_mean(changes: Tensor, weights: Sequence[float], elected: Tensor) -> Tensor:
    """The mean of the changes whose sign was elected, by weight; zero where none was.

    Args:
        changes: task vectors, shape ``(models, *shape)``; zeros take no part.
        weights: one for each model.
        elected: for each entry 1, -1, or 0 for none, shape ``(*shape)``.
    """
    total, mass = agreeing_sum(changes, weights, elected)
    return total.div_(mass.masked_fill_(mass == 0, 1))


def agreeing_sum(changes: Tensor, weights: Sequence[float], elected: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted sum of the changes whose sign was elected, and the sum of their weights; see `agreeing_mean`."""
    total, mass = torch.zeros_like(elected), torch.zeros_like(elected)
    for change, weight in zip(changes, weights, strict=True):
        # Lengths of the entries that have the elected sign; zeros elsewhere.
        agreeing = torch.mul(change, elected).clamp_(min=0)
        total.add_(agreeing, alpha=weight)
        mass.add_(agreeing.sign_(), alpha=weight)
    return total.mul_(elected), mass


def kept_where(kept: Tensor, changes: Tensor) -> Tensor:
    """True too where a change is NaN or infinite: nothing that is no number may be dropped, which would hide it.

    Args:
        kept: which entries a method keeps.
        changes: task vectors, of the same shape.
    """
    return kept | ~changes.isfinite()


def per_model(value: PerModel, count: int) -> list[float]:
    """A hyperparameter's number for each of so many models.

    Args:
        value: one number for all, or a number for each.
        count: of the models.
    """
    return list(value) if isinstance(value, Sequence) else [value] * count


def check_fractions(name: str, value: PerModel, count: int) -> None:
    """Refuse fractions that are not above 0 and at most 1, or are not one for all models or one for each.

    Args:
        name: of the hyperparameter.
        value: one number, or several.
        count: of the models.

    Raises:
        InputError: they are not.
    """
    if isinstance(value, Sequence) and len(value) != count:
        raise InputError(f"{name} is {list(value)}; expected one number, or one for each of {count} models")
    for place, fraction in enumerate(per_model(value, count)):
        check_fraction(f"{name} of model {place}" if isinstance(value, Sequence) else name, fraction)


def check_fraction(name: str, value: float) -> None:
    """Refuse a fraction that is not above 0 and at most 1.

    Raises:
        InputError: it is not.
    """
    if not 0 < value <= 1:
        raise InputError(f"{name} is {value}; expected a number above 0, at most 1")
