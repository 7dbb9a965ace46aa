"""The results of a run for TensorBoard: one run for each matching, the same tags in all of them."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from fusionlab.evaluation.comparison_table import HEADS, comparison_lines, group_lines
from fusionlab.evaluation.distances import by_gauge, by_pair
from fusionlab.evaluation.drawing import DPI
from fusionlab.evaluation.plots import Plot, plots
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.verdict import verdict
from fusionlab.evaluation.wording import (
    file_name,
    format_value,
    gauge_label,
    matching_label,
    metric_heading,
    models_label,
)
from fusionlab.threads import failures_raised

SUMMARY_RUN = "summary"


def write_tensorboard(results: Results, folder: Path, drawn: Sequence[Plot] | None = None) -> None:
    """Write the results as TensorBoard runs that lie over each other in one chart.

    Each matching is a run (``unmatched``, ``paper``, ...), each end model is another, which shows the level to reach.
    The tags are the same in all runs:

    - ``line/loss/<data set>`` and ``line/accuracy/<data set>``; the step is the percentage of the way from the
      anchor (0) to the other model (100);
    - ``distance/<kind of space>``; the step is the layer. The unmatched run shows the models as they come; where
      matchings have a gauge, the run ``unmatched, in the gauge of ...`` shows where they start from.
      Parameters outside all layers are ``distance/<kind of space>/no layer`` at step 0;
    - ``merge/<metric>/<data set>`` at step 0.

    Where there are several pairs of models, several methods or several sets of merged models, the tags end in
    ``/<anchor> to <model>``, ``/<method>`` or ``/<models>``, so that no two series share a tag in one run.
    The tab of hyperparameters has a row for each end model and matching, with the scores. The figures, the verdict, the
    scores and what matching changes are in the run ``summary``.

    Args:
        results: what was measured.
        folder: parent folder of the runs.
        drawn: the figures of the results; drawn here if None.

    Raises:
        OSError: the disk failed or is full.
    """
    folder = Path(folder)
    for matching, name in _run_names(results).items():
        with _writer(folder / name) as writer:
            _write_lines(writer, results, [c for c in results.curves if c.matching == matching])
            _write_distances(writer, results, matching)
            scores = _write_merges(writer, results, matching)
            _write_row(writer, {"model or matching": matching_label(matching), "kind": "merge"}, scores)
    for matchings in _gauges(results):
        with _writer(folder / file_name(gauge_label(matchings))) as writer:
            _write_distances(writer, results, matchings[0], in_gauge=True)
    for model in results.models:
        with _writer(folder / file_name(f"end model {model}")) as writer:
            scores = _write_level(writer, results, model)
            _write_row(writer, {"model or matching": model, "kind": "end model"}, scores)
    with _writer(folder / SUMMARY_RUN) as writer:
        _write_summary(writer, results, plots(results) if drawn is None else drawn)


@contextmanager
def _writer(folder: Path) -> Iterator[SummaryWriter]:
    """A writer of one run; what its thread could not write is raised here."""
    with failures_raised(), closing(SummaryWriter(str(folder))) as writer:
        yield writer


def _run_names(results: Results) -> dict[str, str]:
    """A folder name for each matching; two matchings never share one, nor does a matching share the summary's."""
    names: dict[str, str] = {}
    for matching in dict.fromkeys((UNMATCHED, *results.matchings) if results.distances else results.matchings):
        name = file_name(matching_label(matching))
        while name in names.values() or name == SUMMARY_RUN:
            name += "_"
        names[matching] = name
    return names


def _gauges(results: Results) -> list[tuple[str, ...]]:
    """The matchings that start from each gauge."""
    pairs = by_pair(results.total_distances()).values()
    return list(dict.fromkeys(tuple(t.matching for t in gauge) for totals in pairs for gauge in by_gauge(totals)))


def _pair(results: Results, anchor: str, source: str) -> str:
    pairs = {(c.anchor, c.source) for c in results.curves} | {(d.anchor, d.source) for d in results.distances}
    return f"/{anchor} to {source}" if len(pairs) > 1 else ""


def _merge_tags(results: Results) -> list[tuple[str, str, tuple[str, ...]]]:
    """The end of each merge's tag, with the method and the models it stands for."""
    merges = list(dict.fromkeys((e.method, e.models) for e in results.table().entries if e.is_merge))
    several_methods = len({method for method, _ in merges}) > 1
    several_sets = len({models for _, models in merges}) > 1
    return [
        (
            (f"/{method}" if several_methods else "")
            + (f"/{models_label(models, results.models)}" if several_sets else ""),
            method,
            models,
        )
        for method, models in merges
    ]


def _write_lines(writer: SummaryWriter, results: Results, curves: Sequence[Curve]) -> None:
    for curve in curves:
        ending = curve.data_set + _pair(results, curve.anchor, curve.source)
        for position, loss, score in zip(curve.positions, curve.loss, curve.score, strict=True):
            writer.add_scalar(f"line/loss/{ending}", loss, round(100 * position))
            writer.add_scalar(f"line/{curve.metric}/{ending}", score, round(100 * position))


def _write_distances(writer: SummaryWriter, results: Results, matching: str, in_gauge: bool = False) -> None:
    """Distances after a matching; of the unmatched models as they come, or in the gauge of a matching."""
    if matching == UNMATCHED:
        # Every matching starts from the same two models, so the first one of each pair tells how far apart they come.
        first = {(d.anchor, d.source): d.matching for d in reversed(results.distances)}
        known = [(d, d.given) for d in results.distances if first[d.anchor, d.source] == d.matching]
    else:
        kind = "before" if in_gauge else "after"
        known = [(d, getattr(d, kind)) for d in results.distances if d.matching == matching]
    # A chart leaves out points whose step is smaller than one before it.
    for d, length in sorted(known, key=lambda found: found[0].layer or 0):
        place = "/no layer" if d.layer is None else ""
        tag = f"distance/{d.role}{place}{_pair(results, d.anchor, d.source)}"
        writer.add_scalar(tag, length, d.layer or 0)


def _write_merges(writer: SummaryWriter, results: Results, matching: str) -> list[str]:
    """The scores of a matching's merges.

    Returns:
        Their tags.
    """
    tags = []
    for ending, method, models in _merge_tags(results):
        for row in results.rows:
            if (row.method, row.models, row.matching) == (method, models, matching):
                tags.append(f"merge/{row.metric}/{row.data_set or 'all data'}{ending}")
                writer.add_scalar(tags[-1], row.value, 0)
    return tags


def _write_row(writer: SummaryWriter, says: dict[str, str], tags: Sequence[str]) -> None:
    """The row of a run in the tab of hyperparameters, its scores beside what it is."""
    if not tags:
        return
    for summary in hparams(dict(says), dict.fromkeys(tags, 0.0)):
        assert writer.file_writer is not None
        writer.file_writer.add_summary(summary)


def _write_level(writer: SummaryWriter, results: Results, model: str) -> list[str]:
    """The end model's own scores under the merges' tags, and its level as a flat line under the lines' tags.

    Returns:
        The tags of the scores.
    """
    tags = []
    endings = [ending for ending, _, models in _merge_tags(results) if model in models] or [""]
    own = (model,)
    for row in results.table().entries:
        if row.is_merge or row.models != own:
            continue
        for column, value in zip(results.table().columns, row.values, strict=True):
            for ending in endings if value is not None else ():
                tags.append(f"merge/{column.metric}/{column.data_set or 'all data'}{ending}")
                writer.add_scalar(tags[-1], value, 0)
    seen = set()
    for curve in results.curves:
        if model not in (curve.anchor, curve.source):
            continue
        ending = curve.data_set + _pair(results, curve.anchor, curve.source)
        place = 0 if model == curve.anchor else -1
        for step in (0, 100) if ending not in seen else ():
            writer.add_scalar(f"line/loss/{ending}", curve.loss[place], step)
            writer.add_scalar(f"line/{curve.metric}/{ending}", curve.score[place], step)
        seen.add(ending)
    return tags


def _write_summary(writer: SummaryWriter, results: Results, drawn: Sequence[Plot]) -> None:
    for plot in drawn:
        width, height = (round(DPI * inches) for inches in plot.figure.get_size_inches())
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=plot.png)
        tag = f"{plot.kind}/{plot.title}"
        assert writer.file_writer is not None
        writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), 0)
    summary = verdict(results)
    parts = [f"**{summary.headline}**", *summary.paragraphs, *(f"- {note}" for note in results.notes)]
    writer.add_text("verdict", "\n\n".join(parts), 0)
    table = results.table()
    if table.entries:
        # TensorBoard breaks words where columns are many, so merges of one group of models do not name it each.
        are_several = len({entry.models for entry in table.entries if entry.is_merge}) > 1
        heads = ["model or matching", "method", *(["models"] if are_several else [])]
        heads += [f"{column.data_set} {metric_heading(column.metric)}" for column in table.columns]
        lines = [heads, ["---"] * len(heads)]
        lines += [
            [
                matching_label(entry.matching) if entry.is_merge else entry.name, entry.method,
                *([models_label(entry.models, results.models)] if are_several else []),
                *(format_value(column.metric, v) for column, v in zip(table.columns, entry.values, strict=True)),
            ]
            for entry in table.entries
        ]  # fmt: skip
        writer.add_text("results", _markdown(lines), 0)
    if changes := [*group_lines(results), *comparison_lines(results)]:
        writer.add_text("what matching changes", _markdown([HEADS, ["---"] * len(HEADS), *changes]), 0)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
