"""RegMean (Jin et al., "Dataless knowledge fusion by merging weights of language models", 2023)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.registry import merge_method
from fusionlab.models import aliases
from fusionlab.statistics import Grams, LinearMap
from fusionlab.statistics.statistics import features_read
from fusionlab.types import State

# A Gram matrix whose Cholesky pivots span more than this is as good as singular in float64.
SINGULAR = 1e-12


def refuse_settings(_: Sequence[float], alpha: float, ridge: float, **__: Any) -> None:
    """Refuse an alpha or a ridge out of range; see `regmean`.

    Raises:
        InputError: such a one.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha is {alpha}; expected a number from 0 to 1")
    if not ridge >= 0:
        raise InputError(f"ridge is {ridge}; expected a number from 0 up")


def _maps(survey: WholeSurvey, **_: Any) -> Mapping[str, LinearMap]:
    """The linear maps of all models; see `shared_maps`."""
    return shared_maps(survey.ingredients.gathered(Grams))


def _maps_with_biases(ingredients: Ingredients) -> list[tuple[str, str]]:
    """The weight and the bias of each map that has one."""
    maps: Mapping[str, LinearMap] = ingredients.surveyed
    return [(weight, linear.bias) for weight, linear in maps.items() if linear.bias is not None]


def _holds(shape: Sequence[int], models: int) -> float:
    """Numbers for each number of a weight: maps of all models in float64, and their Gram matrices."""
    pairs = features_read(shape) ** 2
    return 16 + 3 * models + (6 + 2 * models) * pairs / max(1, math.prod(shape))


@merge_method(
    "regmean", needs=("gram",), refuse=refuse_settings, survey=_maps, together=_maps_with_biases, holds=_holds
)
def regmean(
    ingredients: Ingredients, alpha: float = 0.9, ridge: float = 1e-6, normalize: bool = True
) -> dict[str, Tensor]:
    """Give every linear map the outputs that the models' own maps give on their own inputs, as nearly as it can.

    With B = [W b]^T of shape ``(in + 1, out)``, weight and bias together, and G_i the Gram matrix of model i's inputs
    with a one appended, the minimiser of ``sum_i w_i |X_i B - X_i B_i|^2`` (the paper's Eq. 2) solves
    ``(sum_i w_i G_i) B = sum_i w_i G_i B_i``. It is solved as the difference to the weighted mean of the models, in
    float64, by Cholesky decomposition (a minimum-norm least-squares solution where that fails), so that directions
    which no data has seen get the plain mean. A weight that several maps share is solved for once, for the inputs of
    all of them. All else is averaged, and so are weights that are more than linear maps (an output embedding that is
    the input embedding). Weights are shared where they are one tensor in memory, not where their values are equal.

    Args:
        ingredients: models, weights and Gram matrices.
        alpha: factor on the off-diagonal of every Gram matrix, the column of ones included, from 0 to 1 (section 4.2;
            0.9 is the paper's choice). At 1 the result is the exact minimiser, at 0 every coordinate and the bias are
            weighted means by themselves.
        ridge: how strongly the result is drawn to the weighted mean of the models, relative to the mean diagonal
            entry of the summed Gram matrix; from 0 up.
        normalize: whether a Gram matrix is the mean over its rows, so that a larger data set does not count more (the
            weights say what counts); else the sum.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a hyperparameter out of range, Gram matrices that do not belong to these models, or integer buffers
            that differ between the models.
    """
    merged, grams = ingredients.averaged(), ingredients.gathered(Grams)
    solve_maps(merged, ingredients, grams, ingredients.surveyed or shared_maps(grams), alpha, ridge, normalize)
    return merged


def solve_maps(
    merged: dict[str, Tensor],
    ingredients: Ingredients,
    grams: Sequence[Grams],
    maps: Mapping[str, LinearMap],
    alpha: float,
    ridge: float,
    normalize: bool,
) -> None:
    """Set every linear map that Gram matrices know, and its bias, to what `regmean` makes of it.

    Args:
        merged: the merge, changed in place.
        ingredients: models and weights.
        grams: one for each model.
        maps: that all of them know, see `shared_maps`.
        alpha: see `regmean`, like what follows.
        ridge: see there.
        normalize: see there.
    """
    names = _names(ingredients.states[0], maps)
    # Maps of one input are solved together: its matrix is factored once.
    together: dict[tuple[str, bool], list[str]] = {}
    for weight in names:
        together.setdefault((maps[weight].inputs, maps[weight].bias is not None), []).append(weight)
    for weights in together.values():
        matrices = [_matrix(found, weights[0], alpha, normalize) for found in grams]
        solution = _solve(ingredients, maps, weights, matrices, ridge)
        for weight, part in zip(weights, solution, strict=True):
            for name in names[weight]:
                _store(merged, name, maps[name], part)


def shared_maps(grams: Sequence[Grams]) -> Mapping[str, LinearMap]:
    """The linear maps that something was gathered for in all models.

    An expert that every text sends as many tokens to may be left out of one model's and not of another's.

    Args:
        grams: one for each model.

    Raises:
        InputError: maps that differ, or that one of the models does not have.
    """
    omitted = {name for one in grams for names in one.omissions().values() for name in names}
    shared, *others = ({name: one for name, one in found.maps.items() if name not in omitted} for found in grams)
    if any(other != shared for other in others):
        raise InputError("the gram statistics describe different linear maps; expected one architecture and version")
    return shared


def _names(state: State, maps: Mapping[str, LinearMap]) -> dict[str, list[str]]:
    """All names of each weight to solve for, by its first one.

    A weight of which a name is no linear map's is left out: solving for the map would change the other's function.
    """
    first = aliases(state)
    names: dict[str, list[str]] = {}
    for name in state:
        names.setdefault(first.get(name, name), []).append(name)
    return {weight: found for weight, found in names.items() if all(name in maps for name in found)}


def _matrix(grams: Grams, weight: str, alpha: float, normalize: bool) -> Tensor:
    """One model's Gram matrix with its off-diagonal scaled, without the column of ones where there is no bias."""
    linear = grams.maps[weight]
    found = grams.mean(weight) if normalize else grams.matrices[linear.inputs].double()
    matrix = alpha * found
    matrix.diagonal().copy_(found.diagonal())
    return matrix if linear.bias is not None else matrix[:-1, :-1]


def _solve(
    ingredients: Ingredients,
    maps: Mapping[str, LinearMap],
    weights: Sequence[str],
    matrices: Sequence[Tensor],
    ridge: float,
) -> list[Tensor]:
    """The merged B of each of some maps that read one input, shapes ``(in [+ 1], out)``."""
    device = ingredients.states[0][weights[0]].device
    maps_of = [
        [_augmented(state, weight, maps[weight]).to(device) for weight in weights] for state in ingredients.states
    ]
    sizes = [part.shape[1] for part in maps_of[0]]
    stacked = torch.stack([torch.cat(parts, 1) for parts in maps_of])
    shares = stacked.new_tensor(ingredients.weights)
    mean = torch.einsum("m,mio->io", shares, stacked)
    last = matrices[-1].to(device)
    gram = ingredients.weights[-1] * last
    right = torch.zeros_like(mean)
    # Weighted differences to the mean sum to zero, which spares the last model's product, the costly part.
    for share, matrix, own in zip(ingredients.weights[:-1], matrices[:-1], stacked[:-1], strict=True):
        gram.add_(matrix.to(device), alpha=share)
        right.addmm_(matrix.to(device) - last, own - mean, alpha=share)
    scale = float(gram.diagonal().mean())
    gram.diagonal().add_(ridge * (scale if scale > 0 else 1.0))
    return list((mean + solve_symmetric(gram, right)).split(sizes, dim=1))


def solve_symmetric(gram: Tensor, right: Tensor) -> Tensor:
    """The solution of ``gram x = right``, that of least norm where `gram` is singular.

    Args:
        gram: symmetric and positive semidefinite, shape ``(size, size)``.
        right: shape ``(size, columns)``.
    """
    factor, failed = torch.linalg.cholesky_ex(gram)
    pivots = factor.diagonal().square()
    if not failed and pivots.min() > SINGULAR * pivots.max():
        return torch.cholesky_solve(right, factor)
    # Only the processor's LAPACK has a driver for singular matrices.
    found = torch.linalg.lstsq(gram.cpu(), right.cpu(), rcond=SINGULAR, driver="gelsd")
    return found.solution.to(gram.device)


def _augmented(state: Mapping[str, Tensor], weight: str, linear: LinearMap) -> Tensor:
    """One model's B = [W b]^T in float64, shape ``(in [+ 1], out)``."""
    matrix = state[weight].double()
    matrix = matrix.flatten(1).mT if linear.dim == 1 else matrix
    return matrix if linear.bias is None else torch.cat((matrix, state[linear.bias].double()[None]))


def _store(merged: dict[str, Tensor], weight: str, linear: LinearMap, solution: Tensor) -> None:
    """Write a merged B back as weight and bias."""
    if linear.bias is not None:
        merged[linear.bias] = solution[-1].to(merged[linear.bias].dtype)
        solution = solution[:-1]
    matrix = solution.mT if linear.dim == 1 else solution
    merged[weight] = matrix.reshape(merged[weight].shape).to(merged[weight].dtype).contiguous()
