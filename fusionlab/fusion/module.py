"""Fusion under a Trainer: ``trainer.fit`` matches and merges, ``trainer.test`` measures every candidate."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightning.pytorch import LightningDataModule
from torch import nn
from torch.utils.data import DataLoader

from fusionlab import checkpoints
from fusionlab.advice import AUTO, choose
from fusionlab.errors import InputError
from fusionlab.evaluation.comparison import compare
from fusionlab.evaluation.results import UNMATCHED, Results
from fusionlab.evaluation.wording import listing
from fusionlab.finite import refuse_not_finite
from fusionlab.fusion.data import FusionData
from fusionlab.fusion.digests import digest_of
from fusionlab.fusion.fuser import Fuser
from fusionlab.fusion.place import workplace_of
from fusionlab.fusion.plan_of_names import make_plan, recipes
from fusionlab.fusion.results import Candidate, Fused, TestSet
from fusionlab.fusion.searching import refuse_journal_of_several, refuse_journal_with_checkpoint
from fusionlab.fusion.sources import ModelSource, named, source_of
from fusionlab.fusion.testing import CandidateTest
from fusionlab.growing import grown_to_one_size
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import Match
from fusionlab.stages import StagedModule, Stages
from fusionlab.statistics import Statistics, basis_of


class FusionModule(StagedModule, CandidateTest):
    """End models that ``trainer.fit`` makes one of, and ``trainer.test`` measures with every merge beside them.

    What looks at data is a stage of the fit, an epoch each: gathering statistics, learning an alignment, polishing.
    ``on_fit_end`` matches and merges, as far as no stage needed it before; where no method and no matching looks at
    data, the fit is empty. How many epochs and steps there are follows from the plan, not from the Trainer.

    Training data of the Trainer (or ``inputs``) are what matching and merging may look at. A fit that was cut goes on
    from the Trainer's last checkpoint (``trainer.fit(fusion, ..., ckpt_path="last")``).

    >>> fusion = FusionModule(["path/a", "path/b"], match="learned", methods={"simple": {}, "regmean": {}})
    >>> trainer = Trainer()
    >>> trainer.fit(fusion, datamodule=inputs)
    >>> trainer.test(fusion, datamodule=tests)
    >>> fusionlab.save(fusion.kept.model, "merged", like="path/a")

    Attributes:
        checkpoints: the end models that were read, by name; `Checkpoint.write` writes the merge in their format.
        choice: what ``auto`` chose and why; None where the matching was named.
        models: the end models, those grown that were smaller than others (`fusionlab.grow`).
        growths: of those, by name.

    Args:
        models: paths, hub ids or modules, or a mapping from names to them; not modified, but that modules are in eval
            mode from then on.
        match: a preset, a recipe, or several by the name to show them under, of presets with their options
            (``{learned: {steps: 100}}``, ``{mine: {preset: paper, spaces: [ffn]}}``); ``none`` for the unmatched merge
            alone, which is always made too; ``auto`` for what `fusionlab.advise` says of the models, with inputs or
            without.
        methods: a merge method, or several with their hyperparameters; the first makes the merge that is kept.
        inputs: what matching and merging may look at; the training data of the Trainer if None, and where there is
            none and some are needed, synthetic ones.
        samples: how many training samples of the data module they see; all if None.
        test_sets: what the test loaders are, in their order; told from the data module if empty.
        statistics: of the end models, gathered before, for each.
        base: path, hub id or module of the model that all were fine-tuned from, for methods that need it.
        options: fields of `FusionPlan`: ``weights``, ``anchor``, ``ensemble``, ``correct``, ``polish``, ``heads``,
            ``seed``, ``dtype``.

    Raises:
        InputError: models that cannot be read or do not fit each other, or an option that does not exist.
    """

    def __init__(
        self,
        models: Sequence[ModelSource] | Mapping[str, ModelSource],
        match: Match = AUTO,
        methods: str | Mapping[str, Mapping[str, Any]] = "simple",
        inputs: Inputs | None = None,
        samples: int | None = None,
        test_sets: Sequence[TestSet] = (),
        statistics: Sequence[Mapping[str, Statistics]] = (),
        base: ModelSource | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._given_sets = tuple(test_sets)
        self.plan = make_plan(UNMATCHED if match == AUTO else match, methods, **options)  # refused before any reading
        given = named(models)
        for name, model in given.items():
            if isinstance(model, nn.Module):
                refuse_not_finite(name, model)
        self.checkpoints = {
            name: checkpoints.read(str(model)) for name, model in given.items() if not isinstance(model, nn.Module)
        }
        self._as_given = {
            name: model if isinstance(model, nn.Module) else self.checkpoints[name].model
            for name, model in given.items()
        }
        # Models with heads of their own have no outputs in common to learn by. Whether there are inputs is known when
        # the fit begins; until then that there will be. A polish on synthetic inputs gains nothing from twins that were
        # learned on them (docs/advise.md).
        has_outputs = self.plan.heads != "own"
        self.choice = (
            choose(self._as_given, has_outputs, self.checkpoints, may_draw=has_outputs and self.plan.polish is None)
            if match == AUTO
            else None
        )
        if self.choice is not None:
            self.plan = replace(self.plan, matchings=recipes(self.choice.match, self.plan.seed))
        self.inputs, self.samples, self.statistics = inputs, samples, statistics
        base = None if base is None else source_of(base, "base")
        self.base = base if base is None or isinstance(base, nn.Module) else checkpoints.load(str(base))
        self.fused: Fused | None = None
        self._made_of = ""
        # What does not fit is refused here, not after the Trainer has been set up.
        self._grow(inputs)
        self.fuser = Fuser(self.models, self.plan, inputs, statistics, self.base)

    @property
    def kept(self) -> Candidate:
        """The merge to keep: of the first matching by the first method, whose choices are its ``notes``.

        Raises:
            InputError: nothing was fused yet.
        """
        if self.fused is None or self.fused.kept is None:
            raise InputError("nothing was fused yet; expected trainer.fit first")
        return self.fused.kept

    @property
    def results(self) -> Results:
        """Scores, intervals and distances, as a report shows them (`fusionlab.evaluation.folder.write`)."""
        kept, names = self.kept, tuple(self.models)
        assert self.fused is not None
        comparisons, levels = compare(self.measured, seed=self.plan.seed)
        return Results(
            f"Merging {listing(list(names))}", names, self.rows, [], self.fused.distances, {}, self.fused.notes,
            comparisons, levels, kept=(kept.method, kept.matching),
        )  # fmt: skip

    # --- fit ---------------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Take the Trainer's training data as inputs; where nothing looks at data, leave its loop out.

        Raises:
            InputError: models, inputs and options that do not fit each other.
        """
        if stage != "fit":
            super().setup(stage)
            return
        # Of an earlier fit, of which no checkpoint holds anything.
        self.test_all(())
        refuse_journal_of_several(self.plan.search, self.trainer.world_size)
        inputs = self._seen_inputs() if self.inputs is None else self.inputs
        may_learn = inputs is not None and self.plan.heads != "own"
        before = None if self.choice is None else self.choice.match
        if self.choice is not None:
            self.choice = replace(self.choice, has_inputs=may_learn).looking(list(self._as_given.values()), inputs)
            self.plan = replace(self.plan, matchings=recipes(self.choice.match, self.plan.seed))
        is_other = self.choice is not None and self.choice.match != before
        if is_other or inputs is not self.inputs or not self.is_fresh or self.fused is not None:
            if self.growths and (is_other or inputs is not self.inputs):
                self._grow(inputs)
            self.fuser = Fuser(self.models, self.plan, inputs, self.statistics, self.base)
        self._made_of = digest_of(self.plan, self.samples, [basis_of(one.state_dict()) for one in self._sources()])
        self.fuser.matchings.place = place = workplace_of(self.trainer)
        place.rest(*self._as_given.values(), *self.fuser.end_models)
        super().setup(stage)
        if not self.fuser.looks_at_data:
            self.trainer.fit_loop.max_epochs = 0

    def _grow(self, inputs: Inputs | None) -> None:
        """Bring the end models to one size, the largest of all in every dimension.

        Args:
            inputs: to find where layers go by.

        Raises:
            InputError: sizes that cannot become one.
        """
        matches = any(recipe.matches for recipe in self.plan.matchings.values())
        self.growths = grown_to_one_size(self._as_given, None if inputs is None else inputs.shared, matches)
        self.models = self._as_given | {name: growth.model for name, growth in self.growths.items()}

    def _seen_inputs(self) -> Inputs | None:
        """The Trainer's training data."""
        data, count = self.trainer.fit_loop._data_source.instance, len(self.models)
        if data is self or data is None:
            return None
        if isinstance(data, FusionData):
            return data.inputs(count, self.samples, self.plan.seed)
        if isinstance(data, LightningDataModule):
            return Inputs.of([data], count, self.samples, self.plan.seed)
        return Inputs.from_batches(data, count)

    def _sources(self) -> list[nn.Module]:
        return [*self._as_given.values(), *([] if self.base is None else [self.base])]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the fusion is made of, by which another one is told."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["fusion"] = self._made_of

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from there; a search by its journal or from a checkpoint, not both.

        Raises:
            InputError: a checkpoint of other models, or of another plan.
        """
        refuse_journal_with_checkpoint(self.plan.search)
        super().on_load_checkpoint(checkpoint)
        # Older ones do not say it.
        if checkpoint.get("fusion", self._made_of) != self._made_of:
            raise InputError(
                "the checkpoint is of a fusion of other models or by another plan; expected one of the same, or a "
                "start without it"
            )

    def stages(self) -> Stages[None]:
        """The stages of everything that looks at data."""
        return self.fuser.prepare()

    def on_fit_end(self) -> None:
        """Match and merge.

        Raises:
            InputError: the fit was stopped in the middle of a stage.
        """
        super().on_fit_end()
        if self.fuser.looks_at_data:
            _ = self.outcome
        self.fused, self.heads = without_stages(self.fuser.fuse()), self.fuser.heads
        self.test_all(self.fused.candidates)

    # --- test --------------------------------------------------------------------------------------------------------

    def on_test_start(self) -> None:
        """Prepare the scores of every candidate on every loader.

        Raises:
            InputError: nothing was fused yet, or another number of loaders than of test sets.
        """
        if self.fused is None:
            raise InputError("the fusion was tested before anything was fused; expected trainer.fit first")
        self.test_sets = self._given_sets
        if not self.test_sets:
            loaders: Any = self.trainer.test_dataloaders
            count = 1 if isinstance(loaders, DataLoader) else len(loaders)
            data = getattr(self.trainer, "datamodule", None)
            self.test_sets = data.data.sets if isinstance(data, FusionData) else told_by(data, count)
        super().on_test_start()


def without_stages(stages: Stages[Fused]) -> Fused:
    """The result of code whose stages were all run before."""
    try:
        stage = next(stages)
    except StopIteration as last:
        found: Fused = last.value
        return found
    raise AssertionError(f"{stage.label} was not prepared")


def told_by(data: LightningDataModule | None, count: int) -> tuple[TestSet, ...]:
    """Test sets in domain that a data module describes, one for each of its loaders.

    Args:
        data: names the data, their task, classes and metric, as far as it has those; None for nothing known.
        count: how many loaders there are.
    """
    from fusionlab.data.contract import described  # noqa: PLC0415 (the data modules' library takes most of a second)

    facts = described(data)
    name = "test" if data is None else facts.name
    numbers = itertools.islice(itertools.chain([""], (f" {number}" for number in itertools.count(2))), count)
    return tuple(TestSet.of(facts, f"{name}{number}") for number in numbers)
