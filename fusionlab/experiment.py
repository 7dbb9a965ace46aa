"""One run from end models to results: fuse, test, draw the lines, write everything into one folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from torch import nn

from fusionlab.atomic import MIB
from fusionlab.batch_norm import averaged_note
from fusionlab.dtypes import merge_note
from fusionlab.errors import InputError
from fusionlab.evaluation.disagreement import Example, disagreements
from fusionlab.evaluation.kept import kept_note
from fusionlab.evaluation.line import LineModule, refuse_points
from fusionlab.evaluation.plane import Plane
from fusionlab.evaluation.plane_points import PlaneModule, corners_of, grid_of, points_of, refuse_plane
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.wording import format_value, listing
from fusionlab.fusion import BaseModel, Data, Fused, Fuser, FusionModule, FusionPlan
from fusionlab.fusion.misfit import refuse_misfit
from fusionlab.growing import told
from fusionlab.inputs import Inputs
from fusionlab.stages import RETURNS_NOTHING
from fusionlab.statistics import Grams, Statistics
from fusionlab.statistics.store import StatisticsStore
from fusionlab.trainers import make_tester, make_trainer

# Larger changes of logits by rounding twins to their dtype, relative to the largest logit, are told to the reader.
NOTED_ROUNDING = 0.05
# In a report, of each data set: at most, and where one is asked for that people read.
MOST_EXAMPLES, SHOWN_EXAMPLES = 100, 4
# Beside few inputs; whether any are made depends on the models.
_SUPPLEMENTED = (
    "What was learned had synthetic inputs beside so few, where the models take images or write texts "
    "(`synthetic` of the settings)."
)
# What tables, plots and TensorBoard logs take at most, roughly.
REPORT_BYTES = 16 * MIB


@dataclass(frozen=True)
class Plan(FusionPlan):
    """A fusion, and how it is measured.

    Attributes:
        points: evenly spaced positions on each line between two models, both ends included; 0 draws none.
        examples: at most so many test examples of each data set that end models and merge classify differently are
            shown in the report; 0 shows none, for data that must not be in it.
        plane: points along each side of a grid in the plane through three models, on which the loss is drawn; 0 draws
            none. Each of their square is a pass over the test data.
        trainer: arguments of every Trainer: accelerator, devices, precision, strategy.
    """

    points: int = 11
    examples: int = 0
    plane: int = 0
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_points(self.points, may_be_none=True)
        if not 0 <= self.examples <= MOST_EXAMPLES:
            raise InputError(f"examples is {self.examples}; expected a number from 0 to {MOST_EXAMPLES}")
        refuse_plane(self.plane)
        if self.plane and (self.heads != "merged" or self.correct):
            other = "correct" if self.correct else f"heads {self.heads}"
            raise InputError(f"plane was given with {other}; expected a plane of models as they are, with merged heads")


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
    trainer = make_trainer(plan.trainer, "end models and merges")
    options = {field.name: getattr(plan, field.name) for field in fields(FusionPlan)}
    chosen = {"match": options.pop("matchings"), "methods": options.pop("methods")}
    module = FusionModule(
        models, **chosen, inputs=inputs, test_sets=data.sets, statistics=statistics, base=base, **options
    )
    refuse_misfit(module.fuser.end_models, data, module.fuser.heads)
    refuse_no_plane(plan, len(module.models), data)
    trainer.fit(module)
    fused = module.fused
    if fused is None:
        raise InputError(RETURNS_NOTHING)
    if data.loaders:
        trainer.test(module, list(data.loaders), verbose=False)
    return fused, results_of(module, data, plan, title, inputs)


def results_of(module: FusionModule, data: Data, plan: Plan, title: str, inputs: Inputs | None = None) -> Results:
    """Everything measured on a fusion, lines drawn.

    Args:
        module: fitted, and tested where there are data.
        data: what it was tested on.
        plan: how.
        title: of the report.
        inputs: what matching and merging looked at.
    """
    fuser, fused = module.fuser, module.fuser.fused
    curves: list[Curve] = []
    if data.loaders and plan.points:
        for matching in (UNMATCHED, *plan.matchings):
            curves += draw_lines(fuser, matching, data, plan.points, plan.trainer)
        curves.sort(key=lambda curve: fuser.names.index(curve.source))
    planes = draw_planes(fuser, data, plan) if plan.plane else []
    measured = "only distances between the models were measured" if plan.matchings else "nothing was measured"
    notes = [f"{told(module.growths)}."] if module.growths else []
    notes += [] if data.loaders else [f"No data was given, so {measured}."]
    if inputs is not None and inputs.described and fuser.looks_at_inputs:
        notes.append(f"Matching and merging looked at {inputs.described}; no score here is measured on them.")
        notes += [_SUPPLEMENTED] if inputs.are_few and plan.adds_synthetic else []
    notes += [note] if (note := merge_note(module.models, plan.dtype)) else []
    notes += [averaged_note()] if fuser.averaged else []
    notes += rounding_notes(fused)
    notes += omission_notes(fuser.store)
    if fuser.base is not None and fuser.needs_base:
        notes += [*fuser.base.notes, *(base_note(fuser.base, name) for name in plan.matchings)]
    notes += [*([] if fused.search is None else [fused.search.told]), *fused.notes]
    notes += [note] if (note := kept_note(module.results)) else []
    examples = []
    if fused.kept is not None and plan.heads == "merged":
        examples = examples_of([*fuser.end_models, fused.kept.model], data, plan.examples)
    return replace(module.results, title=title, curves=curves, notes=notes, examples=examples, planes=planes)


def examples_of(models: Sequence[nn.Module], data: Data, most: int) -> list[Example]:
    """Test examples that some models of one task classify differently.

    Args:
        models: the end models, then the merge.
        data: what to look at.
        most: examples of each data set.
    """
    found = []
    for given, loader in zip(data.sets, data.loaders, strict=True):
        if given.task in (None, "classification"):
            found += disagreements(models, loader, given.name, given.class_names, given.tokenizer, most)
    return found


def rounding_notes(fused: Fused) -> list[str]:
    """A sentence for every matching that keeps functions exactly, but not once its twins are rounded to their dtype."""
    worst = {name: max(check.stored for check in matched.preservation) for name, matched in fused.matched.items()}
    return [
        f"{name}: the matched twins are exact, but rounded to the type they are stored in they change a model's "
        f"logits by {difference:.1%} of the largest; checkpoints of a wider type keep the function."
        for name, difference in worst.items()
        if difference > NOTED_ROUNDING
    ]


def omission_notes(store: StatisticsStore) -> list[str]:
    """A sentence for every reason why parameters have no Gram matrix, which RegMean and others then average."""
    return [
        f"Nothing was gathered for {listing([*names[:2], *([f'{len(names) - 2} more'] if len(names) > 2 else [])])} "
        f"({reason}): methods that look at Gram matrices average them."
        for reason, names in store.omissions(Grams.kind).items()
    ]


def base_note(base: BaseModel, matching: str) -> str:
    """A sentence on how long task vectors are in the basis of a matching, which elementwise methods depend on."""
    lengths = base.task_lengths(matching)
    given, moved = (listing([format_value("distance", pair[place]) for pair in lengths]) for place in (0, 1))
    return (
        f"{matching}: the base model was brought into the basis of the matched models, where their distances to it are "
        f"{moved}; as they come they are {given}."
    )


def draw_lines(fuser: Fuser, matching: str, data: Data, points: int, trainer: Mapping[str, Any]) -> list[Curve]:
    """A line from the anchor to every other model, in one matching, on every test set.

    Args:
        fuser: whose models and matchings these are.
        matching: one of its plan's matchings, which was matched by, or ``none``.
        data: what to measure on.
        points: positions on each line, at least 3.
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
            settle = fuser.settle(matching, index)
            line = LineModule(models[fuser.anchor], models[index], positions, scores, settle)
            label = f"line, {'unmatched' if matching == UNMATCHED else matching}"
            make_tester(trainer, label).test(line, [loader] * points, verbose=False)
            loss, score = (tuple(found[metric] for found in line.scores) for metric in ("loss", line.main))
            place = (test_set.name, test_set.domain)
            found.append(Curve(source, anchor, matching, *place, positions, loss, score, line.main))
    return found


def refuse_no_plane(plan: Plan, count: int, data: Data) -> None:
    """Refuse to draw a plane of other than three models, or of a loss that nothing is measured of.

    Args:
        plan: of the fusion.
        count: of end models.
        data: what to measure on.

    Raises:
        InputError: there is no plane.
    """
    if plan.plane and (count != 3 or not data.loaders):
        given = f"{count} models" if count != 3 else "no data"
        raise InputError(f"plane is {plan.plane}, and there are {given}; expected three models and data to measure on")


def draw_planes(fuser: Fuser, data: Data, plan: Plan) -> list[Plane]:
    """The loss on the plane through three models, unmatched and in each matching, on every test set.

    Args:
        fuser: whose models and matchings these are.
        data: what to measure on.
        plan: how many points, and the Trainer's arguments.
    """
    found = []
    order = [fuser.anchor, *(index for index in range(3) if index != fuser.anchor)]
    for matching in (UNMATCHED, *plan.matchings):
        twins = fuser.end_models if matching == UNMATCHED else fuser.fused.matched[matching].twins
        models = [twins[index] for index in order]
        corners = corners_of([model.state_dict() for model in models])
        for test_set, loader in zip(data.sets, data.loaders, strict=True) if corners is not None else ():
            assert corners is not None
            across, upwards = grid_of(corners, plan.plane)
            scores, shares = partial(test_set.scores, models[0]), points_of(corners, plan.plane)
            module = PlaneModule(models, shares, scores, fuser.settle(matching, order[1]))
            label = f"plane, {'unmatched' if matching == UNMATCHED else matching}"
            make_tester(plan.trainer, label).test(module, [loader] * len(shares), verbose=False)
            *loss, first, second, third, mean = (one["loss"] for one in module.scores)
            rows = tuple(tuple(loss[start : start + plan.plane]) for start in range(0, len(loss), plan.plane))
            names = tuple(fuser.names[index] for index in order)
            found.append(
                Plane(
                    (names[0], names[1], names[2]), matching, test_set.name, test_set.domain, corners, across, upwards,
                    rows, (first, second, third), mean,
                )
            )  # fmt: skip
    return found
