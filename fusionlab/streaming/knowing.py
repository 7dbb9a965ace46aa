"""Knowledge that a merge by parts needs of checkpoint folders: their class, its blueprint, their statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from fusionlab.checkpoints.weightless import Weightless
from fusionlab.errors import InputError
from fusionlab.merging.method import MergeMethod
from fusionlab.statistics import Statistics
from fusionlab.statistics.statistics import Digest, missing_kinds
from fusionlab.streaming.classes import made_by
from fusionlab.streaming.informed import Informed
from fusionlab.streaming.known import is_known
from fusionlab.streaming.pipeline import workers
from fusionlab.streaming.stored import StoredModel
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry import SymmetryError, blueprint


def informed(
    models: Sequence[StoredModel],
    method: MergeMethod,
    given: Sequence[Mapping[str, Statistics]],
    hyperparameters: Mapping[str, Any] = MappingProxyType({}),
    has_data: bool = False,
) -> Informed | None:
    """All that a method needs of each model, its statistics found by digests of the models as transformers reads them.

    Args:
        models: that agree in names, shapes and configs.
        method: that merges them.
        given: statistics of any models, by kind.
        hyperparameters: the method's own.
        has_data: what is missing can be gathered.

    Returns:
        None where a class or its files are not known well enough to tell, or statistics can be gathered, which takes
        models in memory.

    Raises:
        InputError: numbers that are NaN or infinite, statistics of what is no parameter, or none of a model.
    """
    if not method.by_parts(**hyperparameters) or not is_known(models[0]) or (made := made_by(models[0])) is None:
        return None
    described = None
    if "blueprint" in method.requires(**hyperparameters):
        try:
            described = blueprint(made.model)
        except (InputError, SymmetryError):
            return None
    kinds = method.kinds(**hyperparameters)
    statistics = _statistics_of(models, made, given, kinds, has_data) if kinds else [{} for _ in models]
    return None if statistics is None else Informed(made, statistics, described)


def _statistics_of(
    models: Sequence[StoredModel],
    made: Weightless,
    given: Sequence[Mapping[str, Statistics]],
    kinds: Collection[str],
    has_data: bool,
) -> list[dict[str, Statistics]] | None:
    """The statistics of some kinds of each model; None where one is missing that can be gathered, or may be there."""
    known = {(one.basis, one.kind): one for found in given for one in found.values()}
    with workers() as pool:
        bases = list(pool.map(lambda model: basis_of(model, made), models))
    statistics, state = [], made.model.state_dict()
    for index, basis in enumerate(bases):
        own = {kind: one for (measured, kind), one in known.items() if measured == basis}
        if missing := [kind for kind in kinds if kind not in own]:
            if has_data or not _is_read_as_stored(models[index], made):
                return None
            of_others = any(kind in missing for _, kind in known)
            raise missing_kinds(missing, models[index].source if own or of_others else "", sorted(own))
        # All that is known of the model, whether it is needed or not: a file that is wrong about one kind is damaged.
        for one in own.values():
            one.refuse_strangers(state, f"model {index}")
        statistics.append({kind: own[kind] for kind in kinds})
    return statistics


def _is_read_as_stored(model: StoredModel, made: Weightless) -> bool:
    """True where a model in memory surely has the numbers of its files, so that both have one digest.

    Not where weights are computed as they are read, whose last bit may be another one, nor where transformers may keep
    some in a wider type than they are stored in.
    """
    types = {stored.dtype for stored in model.tensors.values() if stored.dtype.is_floating_point}
    wide = [getattr(made.model, name, None) for name in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")]
    widens = any(wide) and not types <= {torch.float32, torch.float64}
    return model.base is None and not model.is_scaled and not widens


def basis_of(model: StoredModel, made: Weightless) -> str:
    """`fusionlab.statistics.basis_of` a model on the disk, a parameter at a time.

    Args:
        model: as it lies there.
        made: its class without weights.
    """
    digest = Digest()
    with model.opened() as reader:
        parameters = PartReader(reader, made)
        for name in sorted(made.names):
            digest.add(name, parameters.read([name])[name])
    return digest.hexdigest()
