"""Testing models side by side: every candidate on every test set, in one pass over each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightning import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler

from fusionlab.errors import InputError
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.results import END_MODEL, NO_MATCHING, Row
from fusionlab.evaluation.scores import Scores
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.models import borrowed


class CandidateTest(LightningModule):
    """``trainer.test`` scores every candidate on every loader; ``rows`` holds the numbers.

    ``measured`` holds what each example adds to them, for intervals; nothing where this process saw but a part.

    Args:
        candidates: models that are tested side by side.
        test_sets: what the test loaders are, in their order.
        heads: which model of a candidate answers on a test set; the candidate's own model if None.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate] = (),
        test_sets: Sequence[TestSet] = (),
        heads: HeadStrategy | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.test_sets = tuple(test_sets)
        self.heads = heads
        self.rows: list[Row] = []
        self.measured: list[Measured] = []
        self._scores: nn.ModuleList = nn.ModuleList()
        self._samples = True  # whether Lightning divides data among processes, before a test
        hooked: Any = self  # torch does not declare what these take
        hooked.register_state_dict_post_hook(_without_tested)
        hooked.register_load_state_dict_post_hook(_miss_no_tested)
        self.test_all(candidates)

    def test_all(self, candidates: Sequence[Candidate]) -> None:
        """Set the models that ``trainer.test`` measures."""
        self.candidates = tuple(candidates)
        # Copies, as a Trainer moves and converts what is registered, and leaves it so.
        self._borrowed = [replace(one, model=borrowed(one.model)) for one in candidates]
        self._tested = nn.ModuleList(one.model for one in self._borrowed)

    def _scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """The model that answers for a candidate on a test set; None where the set is not its task."""
        return candidate.model if self.heads is None else self.heads.scored(candidate, test_set)

    def _new_scores(self, model: nn.Module, test_set: TestSet) -> Scores:
        """Scores that fit the labels as they come."""
        return test_set.scores(model) if self.heads is None else self.heads.scores(model, test_set)

    def setup(self, stage: str) -> None:
        """Let every process go through all of the test data.

        Lightning's sampler would give all of them the same number of examples, some twice, and the scores would count
        those twice. There is no public way to tell a Trainer that was made.
        """
        super().setup(stage)
        if stage == "test":
            connector = self.trainer._accelerator_connector
            self._samples, connector.use_distributed_sampler = connector.use_distributed_sampler, False

    def teardown(self, stage: str) -> None:
        """Let go of the copies that were moved or converted; the Trainer divides data again as it did."""
        super().teardown(stage)
        if stage == "test":
            self.trainer._accelerator_connector.use_distributed_sampler = self._samples
            self.test_all(self.candidates)

    def on_test_start(self) -> None:
        loaders = len(self.trainer.num_test_batches)
        if loaders != len(self.test_sets):
            raise InputError(
                f"{loaders} test loaders were given for {len(self.test_sets)} test sets; expected one each"
            )
        self._scores = nn.ModuleList(
            nn.ModuleList(
                self._new_scores(model, test_set).keep_examples()
                for candidate in self._borrowed
                if (model := self._scored(candidate, test_set)) is not None
            )
            for test_set in self.test_sets
        ).to(self.device)

    def test_step(self, batch: Mapping[str, Tensor], batch_index: int, dataloader_idx: int = 0) -> None:
        test_set = self.test_sets[dataloader_idx]
        try:
            known = batch if self.heads is None else self.heads.labels(batch, test_set)
            for _, model, score in self._answers(dataloader_idx):
                score.update(model.eval(), known)
        except InputError as error:
            raise InputError(f"{test_set.name}: {error}") from error

    def _sees_everything(self, index: int) -> bool:
        """True if this process alone goes through all of a test set; of several under Lightning's sampler none does."""
        loader: Any = self.trainer.test_dataloaders
        loader = loader if isinstance(loader, DataLoader) else loader[index]
        return self.trainer.world_size == 1 or not isinstance(getattr(loader, "sampler", None), DistributedSampler)

    def _answers(self, index: int) -> list[tuple[Candidate, nn.Module, Scores]]:
        """The candidates that a test set is a task of, with the model that answers and its scores."""
        found = [(candidate, self._scored(candidate, self.test_sets[index])) for candidate in self._borrowed]
        scores: Any = self._scores[index]
        answering = [(candidate, model) for candidate, model in found if model is not None]
        return [(candidate, model, score) for (candidate, model), score in zip(answering, scores, strict=True)]

    def on_test_epoch_end(self) -> None:
        self.rows, self.measured = [], []
        for index, test_set in enumerate(self.test_sets):
            for candidate, _, score in self._answers(index):
                if score.is_empty:
                    raise InputError(
                        f"the data {test_set.name!r} has no known label to measure by; expected labelled rows, more of "
                        "them, or longer texts: of a short one no token may be masked"
                    )
                found = score.compute()
                if self._sees_everything(index):
                    key = (candidate.models, candidate.method, candidate.matching)
                    self.measured.append(Measured(*key, test_set.name, test_set.domain, score.answers()))
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
                label = "+".join(candidate.models) if candidate.method == END_MODEL else candidate.method
                label += "" if candidate.matching == NO_MATCHING else f"/{candidate.matching}"
                self.log_dict({f"{test_set.name}/{label}/{metric}": value for metric, value in found.items()})


# What a checkpoint does without: what is tested is made by the fit, and again by one that goes on.
_TESTED = ("_tested.", "_scores.")


def _without_tested(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """Leave the models that are tested out of a state dict."""
    for name in [name for name in state if name.startswith(tuple(prefix + part for part in _TESTED))]:
        del state[name]


def _miss_no_tested(module: nn.Module, keys: Any) -> None:
    """Do not miss them in one that is loaded."""
    keys.missing_keys[:] = [name for name in keys.missing_keys if not name.startswith(_TESTED)]
