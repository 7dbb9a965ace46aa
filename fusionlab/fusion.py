"""The main job as a LightningModule: gather, match, merge, evaluate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning import LightningModule
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.distance import distance_by_space
from fusionlab.evaluation.preservation import Preservation, check_preservation
from fusionlab.evaluation.results import END_MODEL, NO_MATCHING, UNMATCHED, Distance, Domain, Row
from fusionlab.evaluation.scores import Scores
from fusionlab.matching.align import align_states, choose_anchor
from fusionlab.matching.options import MatchOptions
from fusionlab.merging import merge_states
from fusionlab.models import common_blueprint, with_state
from fusionlab.symmetry import Alignment


@dataclass(frozen=True)
class TestSet:
    """A test loader's name, and whether the end models were trained on data like it."""

    __test__ = False

    name: str
    domain: Domain = "in"


@dataclass
class Candidate:
    """One model to be tested: an end model or a merge.

    Attributes:
        models: names of the end models in it.
        method: the merge method, or ``end model``.
        matching: the matching's name, or ``none``; ``-`` for an end model.
        model: the model.
        seconds: time to match and merge.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    model: nn.Module
    seconds: float | None = None


@dataclass(frozen=True)
class Matched:
    """What one matching did to all end models.

    Attributes:
        alignments: one for each end model, in order.
        twins: the matched twins.
        preservation: how exactly each twin keeps its end model's function.
        seconds: time to match.
    """

    alignments: Sequence[Alignment]
    twins: Sequence[nn.Module]
    preservation: Sequence[Preservation]
    seconds: float


@dataclass
class Fused:
    """What fitting a `FusionModule` leaves behind: all models to be tested, the matchings, distances to the anchor."""

    anchor: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    matched: dict[str, Matched] = field(default_factory=dict)
    distances: list[Distance] = field(default_factory=list)


class FusionModule(LightningModule):
    """Matches and merges end models, and tests them, the unmatched merge and every matched merge side by side.

    ``trainer.fit`` passes once over the data that matching and merging need (none, for matching by weights and
    simple merging); at its end the models are matched, checked and merged. ``trainer.test`` then scores every
    candidate on every loader; ``rows`` holds the numbers. Devices, precision and progress bars are the Trainer's.

    Args:
        models: end models by name, all of one architecture; not modified.
        matchings: options by the name to show them under; the unmatched merge is always made too.
        method: merge method.
        weights: one for each model, or None for equal ones.
        anchor: index of the model that the others are matched to, or ``nearest``.
        hyperparameters: of the merge method.
        test_sets: what the test loaders are, in their order.

    Raises:
        InputError: fewer than two models, or models that do not fit each other.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        matchings: Mapping[str, MatchOptions],
        method: str = "simple",
        weights: Sequence[float] | None = None,
        anchor: int | str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        test_sets: Sequence[TestSet] = (),
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.names = tuple(models)
        self.blueprint = common_blueprint(models)
        self.end_models = nn.ModuleList(models.values()).eval()
        self.anchor = choose_anchor([model.state_dict() for model in models.values()], anchor)
        self.matchings = dict(matchings)
        for options in self.matchings.values():
            options.select(self.blueprint)
        self.method, self.weights, self.hyperparameters = method, weights, dict(hyperparameters or {})
        self.test_sets = tuple(test_sets)
        self.fused = Fused()
        self.rows: list[Row] = []
        self._tested = nn.ModuleList()
        self._scores: nn.ModuleList = nn.ModuleList()

    # --- fit: gather, then match and merge -------------------------------------------------------------------------

    def configure_optimizers(self) -> None:
        """Nothing is optimised."""

    def train_dataloader(self) -> list[Any]:
        """Neither weight matching nor simple merging looks at data."""
        return []

    def training_step(self, batch: Mapping[str, Tensor], batch_index: int) -> None:
        """No method of this version gathers statistics."""

    def on_fit_end(self) -> None:
        self.fuse()

    def fuse(self) -> Fused:
        """Match and merge; what `on_fit_end` does, for use without a Trainer."""
        fused = Fused(self.anchor, [Candidate((name,), END_MODEL, NO_MATCHING, m) for name, m in self._named()])
        fused.candidates.append(self._merge(list(self.end_models), UNMATCHED, 0.0))
        for name, options in self.matchings.items():
            matched = self._match(options)
            fused.matched[name] = matched
            fused.candidates.append(self._merge(matched.twins, name, matched.seconds))
            fused.distances += self._distances(name, matched)
        self.fused = fused
        self._tested = nn.ModuleList(candidate.model for candidate in fused.candidates)
        return fused

    def _match(self, options: MatchOptions) -> Matched:
        start = time.perf_counter()
        states = [model.state_dict() for model in self.end_models]
        alignments = align_states(states, self.blueprint, options, self.anchor)
        twins = [alignment.apply(model) for alignment, model in zip(alignments, self.end_models, strict=True)]
        seconds = time.perf_counter() - start
        checks = [
            check_preservation(model, twin, alignment)
            for model, twin, alignment in zip(self.end_models, twins, alignments, strict=True)
        ]
        return Matched(alignments, twins, checks, seconds)

    def _merge(self, models: Sequence[nn.Module], matching: str, seconds: float) -> Candidate:
        start = time.perf_counter()
        merged = merge_states([m.state_dict() for m in models], self.method, self.weights, **self.hyperparameters)
        took = seconds + time.perf_counter() - start
        return Candidate(self.names, self.method, matching, with_state(models[self.anchor], merged), took)

    def _distances(self, matching: str, matched: Matched) -> list[Distance]:
        anchor, twin_of_anchor = self.end_models[self.anchor].state_dict(), matched.twins[self.anchor].state_dict()
        found = []
        for index, (name, model) in enumerate(self._named()):
            if index != self.anchor:
                before = distance_by_space(model.state_dict(), anchor, self.blueprint)
                after = distance_by_space(matched.twins[index].state_dict(), twin_of_anchor, self.blueprint)
                found += [
                    Distance(name, self.names[self.anchor], matching, role, layer, before[role, layer], value)
                    for (role, layer), value in after.items()
                ]
        return found

    def _named(self) -> list[tuple[str, nn.Module]]:
        return list(zip(self.names, self.end_models, strict=True))

    # --- test: every candidate on every loader ---------------------------------------------------------------------

    def on_test_start(self) -> None:
        if not self.fused.candidates:
            raise InputError("the fusion was tested before it was fitted; expected trainer.fit first")
        loaders = len(self.trainer.num_test_batches)
        if loaders != len(self.test_sets):
            raise InputError(
                f"{loaders} test loaders were given for {len(self.test_sets)} test sets; expected one each"
            )
        self._scores = nn.ModuleList(nn.ModuleList(Scores() for _ in self.fused.candidates) for _ in self.test_sets).to(
            self.device
        )

    def test_step(self, batch: Mapping[str, Tensor], batch_index: int, dataloader_idx: int = 0) -> None:
        scores: Any = self._scores[dataloader_idx]
        try:
            for score, model in zip(scores, self._tested, strict=True):
                score.update(model.eval(), batch)
        except InputError as error:
            raise InputError(f"{self.test_sets[dataloader_idx].name}: {error}") from error

    def on_test_epoch_end(self) -> None:
        self.rows = []
        for test_set, scores in zip(self.test_sets, self._scores, strict=True):
            loader_scores: Any = scores
            for candidate, score in zip(self.fused.candidates, loader_scores, strict=True):
                found = score.compute()
                self.rows += [
                    Row(
                        candidate.models,
                        candidate.method,
                        candidate.matching,
                        test_set.name,
                        test_set.domain,
                        metric,
                        value,
                        candidate.seconds,
                    )
                    for metric, value in found.items()
                ]
                label = "+".join(candidate.models) if candidate.method == END_MODEL else candidate.matching
                self.log_dict({f"{test_set.name}/{label}/{metric}": value for metric, value in found.items()})
