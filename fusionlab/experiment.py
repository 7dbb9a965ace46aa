"""One run from end models to results: fuse, test, draw the lines, write everything into one folder."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import nn
from torch.utils.data import DataLoader

from fusionlab.atomic import MIB
from fusionlab.data.contract import described
from fusionlab.dtypes import merge_note
from fusionlab.errors import InputError, first_line
from fusionlab.evaluation.comparison import compare
from fusionlab.evaluation.line import LineModule
from fusionlab.evaluation.report import write_report
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.tensorboard import write_tensorboard
from fusionlab.evaluation.wording import format_value, listing
from fusionlab.forward import LABELS, logits
from fusionlab.fusion import CandidateTest, Fused, Fuser, FusionPlan, TestSet
from fusionlab.inputs import Inputs
from fusionlab.stages import run as run_stages
from fusionlab.statistics import Statistics
from fusionlab.trainers import make_tester, make_trainer

# Larger changes of logits by rounding twins to their dtype, relative to the largest logit, are told to the reader.
NOTED_ROUNDING = 0.05
# What tables, plots and TensorBoard logs take at most, roughly.
REPORT_BYTES = 16 * MIB


@dataclass(frozen=True)
class Plan(FusionPlan):
    """A fusion, and how it is measured.

    Attributes:
        points: positions on each line between two models; 0 draws none.
        trainer: arguments of every Trainer: accelerator, devices, precision, strategy.
    """

    points: int = 11
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.points == 1 or self.points < 0:
            raise InputError(f"points is {self.points}; expected 0 for no lines, or at least 2")


@dataclass(frozen=True)
class Data:
    """Test loaders with what they are."""

    sets: tuple[TestSet, ...] = ()
    loaders: tuple[DataLoader, ...] = ()

    def inside(self) -> "Data":
        """The part in domain."""
        kept = [(s, loader) for s, loader in zip(self.sets, self.loaders, strict=True) if s.domain == "in"]
        return Data(tuple(s for s, _ in kept), tuple(loader for _, loader in kept))

    @staticmethod
    def of(inside: Sequence[LightningDataModule], outside: Sequence[LightningDataModule] = ()) -> "Data":
        """The test loaders of data modules, in domain and out of domain.

        Raises:
            InputError: a data module without test data.
        """
        sets: list[TestSet] = []
        loaders: list[DataLoader] = []
        for modules, domain in ((inside, "in"), (outside, "out")):
            for owner, module in enumerate(modules):
                facts = described(module)
                name = facts.name
                module.prepare_data()
                module.setup("test")
                loader = module.test_dataloader()
                if not isinstance(loader, DataLoader) or len(loader) == 0:
                    raise InputError(f"the data {name!r} has no test split; expected one to measure on")
                taken = [s.name for s in sets]
                numbered = (f"{name} {number}" for number in itertools.count(2))
                unique = name if name not in taken else next(other for other in numbered if other not in taken)
                sets.append(
                    TestSet.of(facts, unique, "in" if domain == "in" else "out", owner if domain == "in" else None)
                )
                loaders.append(loader)
        return Data(tuple(sets), tuple(loaders))


def run(
    models: Mapping[str, nn.Module],
    data: Data,
    plan: Plan,
    title: str,
    inputs: Inputs | None = None,
    statistics: Sequence[Mapping[str, Statistics]] = (),
    base: nn.Module | None = None,
) -> tuple[Fused, Results]:
    """Match, merge, test and draw the lines.

    Args:
        models: end models by name; not modified.
        data: what to measure on; nothing is measured without.
        plan: how.
        title: of the report.
        inputs: what matching and merging may look at; nothing that is measured on.
        statistics: of the end models, gathered before.
        base: the model that all were fine-tuned from, for methods that need it.

    Returns:
        The merges with their alignments, and everything measured.

    Raises:
        InputError: models, options or data that do not fit.
    """

    # Refused settings are told before any work.
    make_trainer(plan.trainer, "")
    fuser = Fuser(models, plan, inputs, statistics, base)
    refuse_misfit(fuser.end_models, data)
    fused = run_stages(fuser.fuse(), partial(make_trainer, plan.trainer, "matching and merging"))
    tested = CandidateTest(fused.candidates, data.sets, fuser.heads)
    curves: list[Curve] = []
    if data.loaders:
        make_tester(plan.trainer, "end models and merges").test(tested, list(data.loaders), verbose=False)
        if plan.points:
            for matching in (UNMATCHED, *plan.matchings):
                curves += draw_lines(fuser, matching, data, plan.points, plan.trainer)
            curves.sort(key=lambda curve: fuser.names.index(curve.source))
    measured = "only distances between the models were measured" if plan.matchings else "nothing was measured"
    notes = [] if data.loaders else [f"No data was given, so {measured}."]
    if inputs is not None and inputs.described:
        notes.append(f"Matching and merging saw {inputs.described}; nothing here is measured on them.")
    notes += [note] if (note := merge_note(models, plan.dtype)) else []
    notes += rounding_notes(fused)
    notes += [base_note(fuser, name) for name in plan.matchings] if fuser.uses_base else []
    comparisons, levels = compare(tested.measured, seed=plan.seed)
    kept = None if fused.kept is None else (fused.kept.method, fused.kept.matching)
    results = Results(
        title, fuser.names, tested.rows, curves, fused.distances, {}, notes, comparisons, levels, kept=kept
    )
    return fused, results


def rounding_notes(fused: Fused) -> list[str]:
    """A sentence for every matching that keeps functions exactly, but not once its twins are rounded to their dtype."""
    worst = {name: max(check.stored for check in matched.preservation) for name, matched in fused.matched.items()}
    return [
        f"{name}: the matched twins are exact, but rounded to the type they are stored in they change a model's "
        f"logits by {difference:.1%} of the largest; checkpoints of a wider type keep the function."
        for name, difference in worst.items()
        if difference > NOTED_ROUNDING
    ]


def base_note(fuser: Fuser, matching: str) -> str:
    """A sentence on how long task vectors are in the basis of a matching, which elementwise methods depend on."""
    lengths = fuser.task_lengths(matching)
    given, moved = (listing([format_value("distance", pair[place]) for pair in lengths]) for place in (0, 1))
    return (
        f"{matching}: the base model was brought into the basis of the matched models, where their distances to it are "
        f"{moved}; as they come they are {given}."
    )


def write(results: Results, folder: Path) -> None:
    """Write ``results.json``, ``results.csv``, ``report.html``, ``plots/`` and TensorBoard logs."""
    write_report(results, folder)
    write_tensorboard(results, folder / "tensorboard")


def draw_lines(fuser: Fuser, matching: str, data: Data, points: int, trainer: Mapping[str, Any]) -> list[Curve]:
    """A line from the anchor to every other model, in one matching, on every test set.

    Args:
        fuser: whose models and matchings these are.
        matching: one of its plan's matchings, which was matched by, or ``none``.
        data: what to measure on.
        points: positions on each line, at least 2.
        trainer: what the Trainer is made with.
    """
    found = []
    positions = tuple(index / (points - 1) for index in range(points))
    models = fuser.end_models if matching == UNMATCHED else fuser.fused.matched[matching].twins
    anchor = fuser.names[fuser.anchor]
    for index, source in enumerate(fuser.names):
        if index == fuser.anchor:
            continue
        for test_set, loader in zip(data.sets, data.loaders, strict=True):
            scores = partial(test_set.scores, fuser.end_models[fuser.anchor])
            line = LineModule(models[fuser.anchor], models[index], positions, scores)
            label = f"line, {'unmatched' if matching == UNMATCHED else matching}"
            make_tester(trainer, label).test(line, [loader] * points, verbose=False)
            loss, score = (tuple(found[metric] for found in line.scores) for metric in ("loss", line.main))
            place = (test_set.name, test_set.domain)
            found.append(Curve(source, anchor, matching, *place, positions, loss, score, line.main))
    return found


@torch.no_grad()
def refuse_misfit(models: Sequence[nn.Module], data: Data) -> None:
    """Run one sample of every test set through a model, so that data of another kind is refused before any work.

    Args:
        models: the end models; a set that belongs to one of them is tried on that one.
        data: the test sets.

    Raises:
        InputError: data without labels, or inputs that the model does not take.
    """
    for test_set, loader in zip(data.sets, data.loaders, strict=True):
        batch = next(iter(loader))
        if not isinstance(batch, Mapping) or LABELS not in batch:
            raise InputError(f"the data {test_set.name!r} gives no {LABELS!r}; expected batches of inputs and labels")
        try:
            owner = test_set.owner if test_set.owner is not None and test_set.owner < len(models) else 0
            logits(models[owner], {name: value[:1] for name, value in batch.items()})
        except Exception as error:
            # Every model refuses foreign inputs in its own way.
            raise InputError(f"the data {test_set.name!r} does not fit the models: {first_line(error)}") from error
