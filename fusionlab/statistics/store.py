"""Statistics of several models on demand: read from a file, moved through an alignment, or gathered once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from fusionlab.inputs import Inputs
from fusionlab.stages import Stages
from fusionlab.statistics.accumulator import find_kind
from fusionlab.statistics.gather import gathered
from fusionlab.statistics.statistics import Activations, Grams, Statistics, basis_of, missing_kinds
from fusionlab.statistics.transport import move
from fusionlab.symmetry import Alignment, SymmetryError

# Kinds that an alignment moves.
MOVABLE = (Grams.kind, Activations.kind)


class StatisticsStore:
    """Keeps statistics by the basis that they were measured in, so that none is gathered twice or used elsewhere.

    Args:
        inputs: what to gather on; None where there is no data.
        given: statistics that exist already, of any models.
        settings: how to gather; each kind takes those that it has (``seed``, ``labels``, ``samples``), unless they are
            None.
    """

    def __init__(
        self,
        inputs: Inputs | None = None,
        given: Sequence[Mapping[str, Statistics]] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.inputs = inputs
        self.settings = dict(settings or {})
        self._kept: dict[tuple[str, str], Statistics] = {}
        for found in given:
            for statistics in found.values():
                self._kept[statistics.basis, statistics.kind] = statistics

    def also_of(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        """Take what was measured on one state for another one too, which has the same numbers in wider types."""
        old, new = basis_of(before), basis_of(after)
        for (basis, kind), found in list(self._kept.items()):
            if basis == old:
                self._kept[new, kind] = replace(found, basis=new)

    def omissions(self, kind: str) -> dict[str, list[str]]:
        """The parameters that statistics of one kind say nothing about, of all models that are known, by the reason."""
        found: dict[str, list[str]] = {}
        for (_, measured), statistics in self._kept.items():
            for reason, names in statistics.omissions().items() if measured == kind else ():
                known = found.setdefault(reason, [])
                known += [name for name in names if name not in known]
        return found

    def of(
        self, index: int, model: nn.Module, kinds: Sequence[str], twin_of: tuple[nn.Module, Alignment] | None = None
    ) -> Stages[dict[str, Statistics]]:
        """Statistics of one model, gathered where there are none yet.

        Args:
            index: its place among the models, which says which inputs are its own.
            model: an end model or a matched twin.
            kinds: what is needed.
            twin_of: for a twin, the end model and the alignment; Gram matrices and activations of the end model are
                then moved along where that is exact, so that one pass over the data serves every matching.

        Raises:
            InputError: something has to be gathered and there is no data.
        """
        basis = basis_of(model.state_dict())
        missing = [kind for kind in kinds if (basis, kind) not in self._kept]
        if twin_of is not None:
            for kind in [kind for kind in missing if kind in MOVABLE]:
                if (yield from self._move(index, model, kind, twin_of)):
                    missing.remove(kind)
        if missing:
            # Of a twin nobody gives any: what is kept of it was moved there.
            held = sorted(kind for measured, kind in self._kept if measured == basis and twin_of is None)
            gathered = yield from self._gather(index, model, missing, held)
            for kind, statistics in gathered.items():
                self._kept[basis, kind] = statistics
        # All that is known of the model, whether it is needed or not: a file that is wrong about one kind is damaged.
        for (measured, _), statistics in self._kept.items():
            if measured == basis:
                statistics.refuse_strangers(model.state_dict(), f"model {index}")
        return {kind: self._kept[basis, kind] for kind in kinds}

    def _move(self, index: int, twin: nn.Module, kind: str, twin_of: tuple[nn.Module, Alignment]) -> Stages[bool]:
        """Keep what the end model's statistics become for its twin; whether there is a way."""
        model, alignment = twin_of
        found = (yield from self.of(index, model, [kind]))[kind]
        assert isinstance(found, Grams | Activations)
        try:
            moved = move(found, alignment, twin.state_dict(), model.state_dict())
        except SymmetryError:
            return False
        self._kept[moved.basis, kind] = moved
        return True

    def _gather(
        self, index: int, model: nn.Module, kinds: Sequence[str], held: Sequence[str]
    ) -> Stages[dict[str, Statistics]]:
        """Gather kinds of which nothing was given; `held` are those that were."""
        if self.inputs is None:
            raise missing_kinds(kinds, f"model {index}" if held else "", held)
        found: dict[str, Statistics] = {}
        # Activations are compared between models, so all models see the same inputs.
        for batches, wanted in (
            (self.inputs.own[index], [kind for kind in kinds if kind != Activations.kind]),
            (self.inputs.shared, [kind for kind in kinds if kind == Activations.kind]),
        ):
            if wanted:
                label = f"gathering {', '.join(wanted)} of model {index + 1}"
                found |= yield from gathered(model, batches, wanted, label=label, **self._settings(wanted))
        return found

    def _settings(self, kinds: Sequence[str]) -> dict[str, Any]:
        known = {name for kind in kinds for name in inspect.signature(find_kind(kind)).parameters}
        return {name: value for name, value in self.settings.items() if name in known and value is not None}
