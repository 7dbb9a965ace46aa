"""One run from end models to results: fuse, test, draw the lines, write everything into one folder."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch import nn
from torch.utils.data import DataLoader

from fusionlab.checkpoints.files import first_line
from fusionlab.errors import InputError
from fusionlab.evaluation.line import LineModule
from fusionlab.evaluation.report import write_report
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.tensorboard import write_tensorboard
from fusionlab.forward import LABELS, logits
from fusionlab.fusion import Fused, FusionModule, TestSet
from fusionlab.matching.options import MatchOptions


@dataclass(frozen=True)
class Plan:
    """What a run does, apart from its models and data.

    Attributes:
        matchings: options by the name to show them under, in order; the first makes the merge that is kept.
        method: merge method.
        hyperparameters: of the method.
        weights: one for each model, or None.
        anchor: index or ``nearest``.
        points: positions on each line between two models; 0 draws none.
        trainer: what the Trainer is made with: accelerator, devices, precision, strategy.
    """

    matchings: Mapping[str, MatchOptions]
    method: str = "simple"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    weights: Sequence[float] | None = None
    anchor: int | str | None = None
    points: int = 11
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.points == 1 or self.points < 0:
            raise InputError(f"points is {self.points}; expected 0 for no lines, or at least 2")
        if str(self.trainer.get("precision")) in ("16-true", "bf16-true", "transformer-engine-float16"):
            # Lightning would round the models themselves, and the rounded merge would be written.
            raise InputError(
                f"precision is {self.trainer['precision']!r}, which rounds the models; "
                f"expected 32-true, 64-true, bf16-mixed or 16-mixed"
            )


@dataclass(frozen=True)
class Data:
    """Test loaders with what they are."""

    sets: tuple[TestSet, ...] = ()
    loaders: tuple[DataLoader, ...] = ()

    @staticmethod
    def of(inside: Sequence[LightningDataModule], outside: Sequence[LightningDataModule] = ()) -> "Data":
        """The test loaders of data modules, in domain and out of domain.

        Raises:
            InputError: a data module without test data.
        """
        sets: list[TestSet] = []
        loaders: list[DataLoader] = []
        for modules, domain in ((inside, "in"), (outside, "out")):
            for module in modules:
                name = str(getattr(module, "name", None) or type(module).__name__)
                module.prepare_data()
                module.setup("test")
                loader = module.test_dataloader()
                if not isinstance(loader, DataLoader) or len(loader) == 0:
                    raise InputError(f"the data {name!r} has no test split; expected one to measure on")
                taken = [s.name for s in sets]
                numbered = (f"{name} {number}" for number in itertools.count(2))
                unique = name if name not in taken else next(other for other in numbered if other not in taken)
                sets.append(TestSet(unique, "in" if domain == "in" else "out"))
                loaders.append(loader)
        return Data(tuple(sets), tuple(loaders))


class NamedProgressBar(RichProgressBar):
    """Lightning's progress bar, saying what is being tested."""

    def __init__(self, label: str) -> None:
        super().__init__(leave=True)
        self._label = label

    @property
    def test_description(self) -> str:
        return self._label


def run(models: Mapping[str, nn.Module], data: Data, plan: Plan, title: str) -> tuple[Fused, Results]:
    """Match, merge, test and draw the lines.

    Args:
        models: end models by name; not modified.
        data: what to measure on; nothing is measured without.
        plan: how.
        title: of the report.

    Returns:
        The merges with their alignments, and everything measured.

    Raises:
        InputError: models, options or data that do not fit.
    """
    module = FusionModule(
        models, plan.matchings, plan.method, plan.weights, plan.anchor, plan.hyperparameters, data.sets
    )
    _refuse_misfit(module.end_models[0], data)
    _trainer(plan, "matching").fit(module)
    curves: list[Curve] = []
    if data.loaders:
        _trainer(plan, "end models and merges").test(module, list(data.loaders), verbose=False)
        if plan.points:
            curves = _curves(module, data, plan)
    measured = "only distances between the models were measured" if plan.matchings else "nothing was measured"
    notes = [] if data.loaders else [f"No data was given, so {measured}."]
    results = Results(title, module.names, module.rows, curves, module.fused.distances, {}, notes)
    return module.fused, results


def write(results: Results, folder: Path) -> None:
    """Write ``results.json``, ``results.csv``, ``report.html``, ``plots/`` and TensorBoard logs."""
    write_report(results, folder)
    write_tensorboard(results, folder / "tensorboard")


def _curves(module: FusionModule, data: Data, plan: Plan) -> list[Curve]:
    """A line from the anchor to every other model, unmatched and in each matching, on every test set."""
    found = []
    positions = tuple(index / (plan.points - 1) for index in range(plan.points))
    twins: dict[str, Sequence[nn.Module]] = {UNMATCHED: list(module.end_models)}
    twins |= {name: matched.twins for name, matched in module.fused.matched.items()}
    for index, source in enumerate(module.names):
        if index == module.anchor:
            continue
        for matching, models in twins.items():
            label = "unmatched" if matching == UNMATCHED else matching
            for test_set, loader in zip(data.sets, data.loaders, strict=True):
                line = LineModule(models[module.anchor], models[index], positions)
                _trainer(plan, f"line, {label}").test(line, [loader] * plan.points, verbose=False)
                loss, accuracy = (tuple(score[metric] for score in line.scores) for metric in ("loss", "accuracy"))
                anchor = module.names[module.anchor]
                found.append(Curve(source, anchor, matching, test_set.name, test_set.domain, positions, loss, accuracy))
    return found


@torch.no_grad()
def _refuse_misfit(model: nn.Module, data: Data) -> None:
    """Run one sample of every test set through a model, so that data of another kind is refused before any work."""
    for test_set, loader in zip(data.sets, data.loaders, strict=True):
        batch = next(iter(loader))
        if not isinstance(batch, Mapping) or LABELS not in batch:
            raise InputError(f"the data {test_set.name!r} gives no {LABELS!r}; expected batches of inputs and labels")
        try:
            logits(model, {name: value[:1] for name, value in batch.items()})
        except Exception as error:
            # Every model refuses foreign inputs in its own way.
            raise InputError(f"the data {test_set.name!r} does not fit the models: {first_line(error)}") from error


def _trainer(plan: Plan, label: str) -> Trainer:
    try:
        return Trainer(
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            max_epochs=1,
            callbacks=[NamedProgressBar(label)],
            **plan.trainer,
        )
    except (ValueError, MisconfigurationException) as error:
        raise InputError(first_line(error)) from error
