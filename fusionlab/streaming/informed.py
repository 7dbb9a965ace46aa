"""The merge of checkpoint folders by statistics that were gathered before, a part of the parameters at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from fusionlab import signals
from fusionlab.batch_norm import running_statistics
from fusionlab.checkpoints.weightless import Weightless, weightless, weightless_timm
from fusionlab.dtypes import widest
from fusionlab.matching.weights import squared_distance
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.method import MergeMethod
from fusionlab.statistics import Statistics
from fusionlab.statistics.statistics import Digest, missing_kinds
from fusionlab.streaming.known import is_known
from fusionlab.streaming.merge import Streamed
from fusionlab.streaming.pipeline import workers
from fusionlab.streaming.recipe import Recipe
from fusionlab.streaming.resuming import Manifest, Tally
from fusionlab.streaming.shards import Writer, like, written
from fusionlab.streaming.stored import StoredModel
from fusionlab.streaming.twins import PartReader, once


@dataclass(frozen=True)
class Informed:
    """Knowledge about models that lie on the disk.

    Attributes:
        made: their class without weights.
        statistics: for each model, by kind; their tensors are mapped from files.
    """

    made: Weightless
    statistics: Sequence[Mapping[str, Statistics]]

    @torch.no_grad()
    def merge(
        self,
        models: Sequence[StoredModel],
        recipe: Recipe,
        folder: Path,
        most: int | None = None,
        advance: Callable[[int], object] = lambda _: None,
        manifest: Manifest | None = None,
    ) -> Streamed:
        """Merge folders by statistics into the weight files of another one.

        One part is in memory at a time: a parameter, or those that depend on each other.

        Args:
            models: see `fusionlab.streaming.merge.stream_merge`, like what follows.
            recipe: whose method merges by statistics.
            folder: empty, or what an earlier call left unfinished.
            most: bytes of a file.
            advance: is told of bytes.
            manifest: of the folder.

        Raises:
            InputError: numbers that are NaN or infinite, or that the type to write in cannot hold; integer buffers that
                differ between the models; or what the method refuses.
        """
        method, planned = recipe.method, recipe.types(models)
        files = like(models[0], planned, most)
        finished = [file for file in files if manifest is not None and file in manifest.finished]
        method.check(recipe.weights, recipe.hyperparameters)
        given = Ingredients([], recipe.weights, None, self.statistics, None, None, recipe.seed)
        if method.survey is not None:
            whole = replace(given, states=[self.made.model.state_dict()] * len(models))
            found = method.survey(WholeSurvey(whole), **(method.hyperparameters | dict(recipe.hyperparameters)))
            given = replace(given, surveyed=found)
        parts = _parts(self, method)
        with ExitStack() as stack:
            readers = [PartReader(stack.enter_context(model.opened()), self.made) for model in models]
            writer = stack.enter_context(written(folder, files, planned, finished))
            tally = stack.enter_context(Tally(files, planned, len(models), manifest))
            for names in parts:
                signals.check()
                sizes = readers[0].sizes(names, writer)
                if not tally.is_written(sizes):
                    tally.add(sizes, _merged(names, readers, recipe, given, writer))
                advance(sum(sizes.values()))
        return Streamed(tuple(map(math.sqrt, tally.totals())), bool(running_statistics(planned)))


def informed(
    models: Sequence[StoredModel],
    method: MergeMethod,
    given: Sequence[Mapping[str, Statistics]],
    has_data: bool = False,
) -> Informed | None:
    """The statistics that a method needs of each model, by digests of the models as transformers would read them.

    Args:
        models: that agree in names, shapes and configs.
        method: that merges them.
        given: statistics of any models, by kind.
        has_data: what is missing can be gathered.

    Returns:
        None where a class or its files are not known well enough to tell, or statistics can be gathered, which takes
        models in memory.

    Raises:
        InputError: numbers that are NaN or infinite, statistics of what is no parameter, or none of a model.
    """
    first = models[0]
    if method.together is None or not is_known(first):
        return None
    made_of = weightless_timm if first.format == "timm" else weightless
    made = made_of(first.config, first.location, {name: stored.shape for name, stored in first.tensors.items()})
    if made is None:
        return None
    known = {(one.basis, one.kind): one for found in given for one in found.values()}
    with workers() as pool:
        bases = list(pool.map(lambda model: _basis_of(model, made), models))
    statistics, state = [], made.model.state_dict()
    for index, basis in enumerate(bases):
        own = {kind: one for (measured, kind), one in known.items() if measured == basis}
        if missing := [kind for kind in method.requires() if kind not in own]:
            if has_data or not _is_read_as_stored(models[index], made):
                return None
            raise missing_kinds(missing)
        # All that is known of the model, whether it is needed or not: a file that is wrong about one kind is damaged.
        for one in own.values():
            one.refuse_strangers(state, f"model {index}")
        statistics.append({kind: own[kind] for kind in method.requires()})
    return Informed(made, statistics)


def _is_read_as_stored(model: StoredModel, made: Weightless) -> bool:
    """True where a model in memory surely has the numbers of its files, so that both have one digest.

    Not where weights are computed as they are read, whose last bit may be another one, nor where types change.
    """
    types = {stored.dtype for stored in model.tensors.values() if stored.dtype.is_floating_point}
    wide = [getattr(made.model, name, None) for name in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")]
    rounds = len(types) > 1 or (any(wide) and not types <= {torch.float32, torch.float64})
    return model.base is None and not model.is_scaled and not rounds


def _basis_of(model: StoredModel, made: Weightless) -> str:
    """`fusionlab.statistics.basis_of` a model on the disk, a parameter at a time."""
    digest = Digest()
    with model.opened() as reader:
        parameters = PartReader(reader, made)
        for name in sorted(made.names):
            digest.add(name, parameters.read([name])[name])
    return digest.hexdigest()


def _merged(
    names: Sequence[str], readers: Sequence[PartReader], recipe: Recipe, given: Ingredients, writer: Writer
) -> list[float]:
    """Merge a part and write it; given are the squared distances of the models to it."""
    first = readers[0]
    states = _alike([reader.read(names) for reader in readers], first.names, recipe.dtype)
    kept = first.write(recipe.method.merge(replace(given, states=states), **recipe.hyperparameters), writer)
    counted = [name for name in once(names, first.names) if kept[name].is_floating_point()]
    return [squared_distance(state, kept, counted) for state in states]


def _alike(
    states: Sequence[Mapping[str, Tensor]], names: Mapping[str, str], least: torch.dtype | None
) -> list[dict[str, Tensor]]:
    """States with each parameter in the widest type that any has it in; what is tied stays one tensor.

    Args:
        states: of the same names.
        names: for each, the one of the tied ones that is stored.
        least: a type that floating ones are at least as wide as, or None.
    """
    types = {names[name]: widest(state[name].dtype for state in states) for name in states[0]}
    if least is not None:
        types = {name: widest([dtype, least]) if dtype.is_floating_point else dtype for name, dtype in types.items()}
    found = []
    for state in states:
        held = {names[name]: tensor for name, tensor in state.items()}
        held = {name: tensor.to(types[name]) for name, tensor in held.items()}
        found.append({name: held[names[name]] for name in state})
    return found


def _parts(known: Informed, method: MergeMethod) -> list[list[str]]:
    """All names of the state, each once: in a part are those that are tied, written or merged together."""
    names = known.made.names
    place = {name: index for index, name in enumerate(names)}
    assert method.together is not None
    joined = [*names.items(), *(group.made for group in known.made.groups.values()), *method.together(known.statistics)]
    pairs = [(place[one[0]], place[other]) for one in joined for other in one[1:] if one[0] in place and other in place]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(pairs)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(graph, directed=False)
    parts: dict[int, list[str]] = {}
    for name, label in zip(names, labels.tolist(), strict=True):
        parts.setdefault(label, []).append(name)
    return list(parts.values())
