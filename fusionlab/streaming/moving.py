"""Knowledge about matched twins that lie on the disk: statistics of their end models, moved as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from fusionlab.asked import Asked
from fusionlab.statistics import Activations, Grams, Statistics
from fusionlab.statistics.movement import Movement
from fusionlab.statistics.statistics import missing_kinds
from fusionlab.streaming.informed import Informed
from fusionlab.streaming.knowing import basis_of
from fusionlab.streaming.stored import StoredModel
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry import Alignment, SymmetryError


@dataclass(frozen=True)
class StoredTwin:
    """A matched twin on the disk.

    Attributes:
        model: the end model.
        twin: of it.
        alignment: what turned the one into the other.
    """

    model: StoredModel
    twin: StoredModel
    alignment: Alignment


@contextmanager
def informed_of_twins(
    known: Informed, twins: Sequence[StoredTwin | None], given: Sequence[Mapping[str, Statistics]]
) -> Iterator[Informed]:
    """All that a merge of matched twins needs, as `fusionlab.statistics.store` has it of models in memory.

    Args:
        known: the same about the end models.
        twins: of the end models, in order; None for one that was not moved.
        given: statistics of any models, by kind; those of a twin itself come first.

    Yields:
        The knowledge, while files are open that statistics are moved by.

    Raises:
        InputError: statistics that do not move with an alignment, which nothing gives of a twin.
    """
    with ExitStack() as stack:
        statistics = [
            own if twin is None else _of_twin(known, own, twin, given, stack)
            for own, twin in zip(known.statistics, twins, strict=True)
        ]
        yield replace(known, statistics=statistics)


def _of_twin(
    known: Informed,
    own: Mapping[str, Statistics],
    twin: StoredTwin,
    given: Sequence[Mapping[str, Statistics]],
    stack: ExitStack,
) -> dict[str, Statistics]:
    """The statistics of one twin: its own that were given, else those of its end model, moved."""
    if not own:
        return {}
    basis = basis_of(twin.twin, known.made)
    found = {kind: one[kind] for one in given for kind in own if kind in one and one[kind].basis == basis}
    source, moved = (_state(one, known, stack) for one in (twin.model, twin.twin))
    shapes = {name: tensor.shape for name, tensor in known.made.model.state_dict().items()}
    movement = Movement(twin.alignment, shapes, moved, source)
    for kind, one in own.items():
        if kind not in found and isinstance(one, Grams | Activations):
            try:
                found[kind] = movement.of(one, basis)
            except SymmetryError:
                continue  # told of as missing
    if missing := [kind for kind in own if kind not in found]:
        raise missing_kinds(missing)
    return found


def _state(model: StoredModel, known: Informed, stack: ExitStack) -> Asked:
    """The parameters of a model, each read when it is asked for."""
    reader = PartReader(stack.enter_context(model.opened()), known.made)
    return Asked(list(known.made.names), lambda name: reader.read([name])[name])
