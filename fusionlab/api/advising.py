"""Advice on models that are to be merged."""

from collections.abc import Iterable
from os import PathLike

from torch import nn

from fusionlab.advice import Advice, advice_on, module_weights, of_one_naming, stored_weights
from fusionlab.api.given import Source
from fusionlab.checkpoints.names import short_names
from fusionlab.errors import InputError
from fusionlab.symmetry.wrappers import unwrapped


def advise(*models: nn.Module | Source) -> Advice:
    """Advice on models that are to be merged: which case they are, what will help, what to run.

    Their weights alone are looked at, those of checkpoints piece by piece in their files; nothing is run, and the
    architecture need not be known. docs/advise.md says by what is judged.

    Args:
        models: two or more, one after the other or in one list: modules, or paths or hub ids of checkpoints.

    Returns:
        The advice; ``.case``, ``.sentence``, ``.match``, ``.commands`` and ``.pairs`` are its parts.

    Raises:
        InputError: fewer than two models, something that is none, or a checkpoint that cannot be read.
    """
    given = list(models)
    if len(given) == 1 and not isinstance(given[0], nn.Module | str | PathLike) and isinstance(given[0], Iterable):
        given = list(given[0])
    paths = [str(one) for one in given if isinstance(one, str | PathLike)]
    names = dict(zip(paths, short_names(paths), strict=True)) if paths else {}
    found = []
    for index, one in enumerate(given):
        if isinstance(one, nn.Module):
            found.append(module_weights(unwrapped(one), f"model {index}"))
        elif isinstance(one, str | PathLike):
            found.append(stored_weights(str(one), names[str(one)]))
        else:
            raise InputError(f"model {index} of advise is a {type(one).__name__}; expected a module or a path")
    return advice_on(of_one_naming(found) if found else found)
