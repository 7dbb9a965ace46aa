"""The model that all end models were fine-tuned from, in the basis of any matching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from fusionlab.dtypes import as_wide_as
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.rows import UNMATCHED
from fusionlab.evaluation.wording import listing
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.results import Fused


class BaseModel:
    """A base model of end models that are matched and merged.

    Task vectors are differences to it, which mean something in one basis only. The twins' basis is that of the anchor's
    twin, so the anchor's alignment, gauge included, is what brings the base there.

    Args:
        model: the base model, under any head or none; not modified. It is taken in a type at least as wide as the end
            models'.
        heads: how the end models' heads are treated.
        end_models: in order.
        fused: has the alignments and twins of every matching that was matched by.

    Raises:
        InputError: a model that does not fit the end models.
    """

    def __init__(self, model: nn.Module, heads: HeadStrategy, end_models: Sequence[nn.Module], fused: Fused) -> None:
        self._fitted = heads.base(as_wide_as(model, heads.models.values()))
        self.heads, self.end_models, self.fused = heads, end_models, fused

    @property
    def model(self) -> nn.Module:
        """The base model in the end models' class."""
        return self._fitted.model

    @property
    def notes(self) -> list[str]:
        """A sentence on the parameters that are averaged, as the base model lacks them; none where it has all."""
        names = [name for name in self.heads.states([self.model])[0] if name in self._fitted.lacking]
        shown = listing([*names[:2], *([f"{len(names) - 2} more"] if len(names) > 2 else [])]) if names else ""
        return [f"The base model has no {shown}, which a merge then averages."] if names else []

    def state(self, matching: str) -> dict[str, Tensor]:
        """The parameters that are merged and that the base model has, in the basis of one of the matchings.

        Args:
            matching: the name of one that was matched by, or ``none``.
        """
        if matching == UNMATCHED:
            return self._fitted.known(self.heads.states([self.model])[0])
        of_anchor = self.fused.matched[matching].alignments[self.fused.anchor]
        # What an anchor that was grown is filled with is none of the base model's.
        return self._fitted.known(self.heads.moved(self.model, replace(of_anchor, filling={})))

    def task_lengths(self, matching: str) -> list[tuple[float, float]]:
        """Lengths of the end models' task vectors as the models come, and in the basis of one of the matchings.

        Args:
            matching: the name of one that was matched by.
        """
        given, moved = self.state(UNMATCHED), self.state(matching)
        ends, twins = self.heads.states(self.end_models), self.heads.states(self.fused.matched[matching].twins)
        pairs = zip(map(self._fitted.known, ends), map(self._fitted.known, twins), strict=True)
        return [(parameter_distance(end, given), parameter_distance(twin, moved)) for end, twin in pairs]
