"""Diagonal Fisher information: the mean over examples of the squared gradient of the example's log-likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.examples import example_count, take_examples
from fusionlab.statistics.accumulator import Common, OwnPass, accumulator, with_settings
from fusionlab.statistics.gradient_rules import NoShortcutError
from fusionlab.statistics.likelihood import LABEL_MODES, Labels, scores
from fusionlab.statistics.per_example import batched, one_by_one
from fusionlab.statistics.statistics import Fisher
from fusionlab.types import Batch

# How far the shortcut may be from examples taken one by one before it is distrusted, relative to each parameter's norm
# (rounding is a hundred times below), and what counts as zero, relative to the largest norm of all parameters.
TOLERANCE = 1e-3
NEGLIGIBLE = 1e-6
BATCHED, ONE_BY_ONE = "batched", "one by one"


@accumulator
class FisherAccumulator(OwnPass):
    """Sums squared gradients of examples, from one batched pass where that is exact, else example by example.

    On its first batch it compares the two ways on two examples, and keeps to the slow one if they differ. Whatever
    precision the pass has, gradients are taken in float32, in float64 for a model in float64.

    Args:
        labels: ``model``, ``expected`` or ``empirical``, see `likelihood.scores`.
        seed: of the labels that are drawn for ``model``.

    Raises:
        InputError: another word for `labels`.
    """

    kind: ClassVar[str] = Fisher.kind

    def __init__(self, labels: Labels = "model", seed: int = 0) -> None:
        if labels not in LABEL_MODES:
            raise InputError(f"labels is {labels!r}; expected one of {', '.join(LABEL_MODES)}")
        self.labels = labels
        self.seed = seed
        self.way = ""
        self._sums: dict[str, Tensor] = {}
        self._aliases: dict[str, str] = {}

    def start(self, model: nn.Module) -> None:
        self.way = ""
        self._sums = _zeros(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        every = model.named_parameters(remove_duplicate=False)
        self._aliases = {name: names[id(p)] for name, p in every if name not in self._sums and p.is_floating_point()}

    def update(self, model: nn.Module, batch: Batch) -> None:
        device = next(model.parameters()).device
        with torch.autocast(device.type, enabled=False):
            # An example alone shows nothing about how examples are kept apart.
            if not self.way and example_count(batch) > 1:
                self.way = self._choose(model, batch)
            if self.way == BATCHED:
                self.way = self._try_batched(model, batch, self._sums)
            if self.way != BATCHED:
                one_by_one(model, batch, self._scores, self._sums)

    def sums(self) -> dict[str, Tensor]:
        return self._sums

    def finish(self, totals: Mapping[str, Tensor], common: Common) -> Fisher:
        # A parameter that no example says anything about has no Fisher information.
        found = {name: totals[name].cpu() / common["examples"] for name in self._sums if bool(totals[name].any())}
        found |= {alias: found[name].clone() for alias, name in self._aliases.items() if name in found}
        told = with_settings(common, labels=self.labels, seed=str(self.seed), gradients=self.way or ONE_BY_ONE)
        return Fisher(**told, diagonal=found)

    def _scores(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        return scores(model, batch, self.labels, self.seed)

    def _try_batched(self, model: nn.Module, batch: Batch, sums: Mapping[str, Tensor]) -> str:
        """Add a batch if there is a shortcut for the model; in which way to go on."""
        try:
            batched(model, batch, self._scores, sums)
        except NoShortcutError as reason:
            return f"{ONE_BY_ONE}: {reason}"
        return BATCHED

    def _choose(self, model: nn.Module, batch: Batch) -> str:
        two = take_examples(batch, torch.arange(2))
        fast, slow = _zeros(model), _zeros(model)
        if (way := self._try_batched(model, two, fast)) != BATCHED:
            return way
        one_by_one(model, two, self._scores, slow)
        largest = max((float(tensor.norm()) for tensor in slow.values()), default=0.0)
        for name, expected in slow.items():
            if float((fast[name] - expected).norm()) > TOLERANCE * float(expected.norm()) + NEGLIGIBLE * largest:
                return f"{ONE_BY_ONE}: batched gradients of {name} differ"
        return BATCHED


def _zeros(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: torch.zeros(p.shape, dtype=torch.promote_types(p.dtype, torch.float32), device=p.device)
        for name, p in model.named_parameters()
        if p.is_floating_point()
    }
