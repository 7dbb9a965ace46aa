"""The part of the pages about fine-tunes of one base that is about data at hand, written from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from cells import alike
from intervals import half_width
from same_base_page import cell_name, filled, settings_words, shares_of
from same_base_settings import SEARCHED, Setting

LABELLED = "with labels"
AIM = 95


def part(found: dict[str, Any], above: dict[str, Any], setting: Setting) -> str:
    """The part of the page.

    Args:
        found: all cells.
        above: those of the rest of the page.
        setting: of which fine-tunes.
    """
    counts, chosen = setting.counts, found["chosen"]
    measured = {count: [seed for seed in setting.test if _is_complete(found, setting, count, seed)] for count in counts}
    seeds = measured[max(counts)]
    inputs = [number for number in chosen["inputs"] if _is_polished(found, max(counts), number, seeds)]
    same = all(alike(above.get(name), found[name]) for name in (f"test {seed} ends" for seed in seeds))
    parts = [_introduction(setting, seeds, same)]
    for count in counts:
        if measured[count] != seeds:
            continue
        own = fmean(score for seed in seeds for score in found[f"test {seed} ends"]["own"][:count])
        base = _shares(found, seeds, count, [found[f"test {seed} ends"]["base"] for seed in seeds])
        rows = [_row(found, setting, seeds, count, method) for method in setting.with_data]
        if count == max(counts):
            rows += [_polished_row(found, setting, seeds, count, number) for number in inputs]
        rows.sort(key=lambda row: -row[0])
        parts.append(
            f"### {count} tasks, data at hand\n\nThe fine-tunes reach {100 * own:.1f} % on average, which is 100 here. "
            f"The base model with the fine-tunes' heads: "
            f"{_told(base).replace(' | ', ', worst task ')}.\n\n"
            "| method | looks at | kept, interval | worst task | seconds | settings |\n|---|---|---:|---:|---:|---|\n"
            + "\n".join(row for _, row in rows)
            + "\n"
        )
        if count == max(counts):
            reached = max(value for value, row in rows if LABELLED not in row)
            word = "reached" if reached >= AIM else "missed"
            alone = max(value for value, row in rows if LABELLED not in row and "polished" not in row)
            parts.append(
                f"The aim at {count} tasks, {AIM} % of the fine-tunes' own scores with unlabelled data, is {word}: "
                f"{reached:.1f}, and {alone:.1f} without a polish.\n"
            )
    return "\n".join([*parts, _curve(found, setting, seeds, inputs), *_tried(found, setting)])


def _looks_at(setting: Setting, method: str) -> str:
    unlabelled = f"{setting.words.unlabelled}, no labels"
    if method.endswith(SEARCHED):
        return f"the base model; {setting.words.labelled}, {LABELLED}"
    known = {"simple": "nothing", "tsv_m": "the base model", "regmean": unlabelled}
    return known.get(method, f"the base model; {unlabelled}")


def _is_complete(found: dict[str, Any], setting: Setting, count: int, seed: int) -> bool:
    """True if all merges of a base model's fine-tunes were measured."""
    names = (cell_name("test", seed, count, one, found["chosen"][f"{count} {one}"]) for one in setting.with_data)
    return all(name in found for name in names)


def _is_polished(found: dict[str, Any], count: int, inputs: int, seeds: Sequence[int]) -> bool:
    """True if a point of the curve was measured on all of some base models."""
    return all(_polish_name(found, seed, count, inputs) in found for seed in seeds)


def _introduction(setting: Setting, seeds: Sequence[int], same: bool) -> str:
    words, meant, file = setting.words, len(setting.test), f"{setting.file}_data.json"
    few = "" if len(seeds) == meant else f" (of {meant} that are meant: the others are not measured yet)"
    again = """ The fine-tunes were trained again for it, from the same seeds: another processor rounds differently,
and what they reach differs a little from the above."""
    measured = f"""That command measures this part, in [`{file}`]({file}), and writes the page. Models, tasks and the
way of counting are those above, over the seeds {", ".join(map(str, seeds))}{few}. `simple`, `tsv_m` and `regmean`,
with what is chosen above, stand here once more for comparison.{"" if same else again}"""
    searched = f"""*Searched* means the search of `fusionlab fuse --search`: Optuna looks for the method's
hyperparameters and the models' weights by the score on {words.labelled}, with labels, which nothing was trained
on and nothing is tested on; nothing about the searches was chosen. """
    polished = f"""*Polished* means that the merge by `tsv_m` was polished with heads of its own (`--heads own
--polish`): each fine-tune teaches on n of its {words.unlabelled}, or on all where it has fewer, without labels.
Seconds are of one thread of a machine that other programs used."""
    meaning = (searched if any(one.endswith(SEARCHED) for one in setting.with_data) else "") + polished
    head = f"## With data at hand\n\n    python benchmarks/same_base_data.py{words.option}\n"
    return "\n".join([head, filled(measured), filled(meaning)])


def _row(found: dict[str, Any], setting: Setting, seeds: Sequence[int], count: int, method: str) -> tuple[float, str]:
    """The mean of a method, and its row."""
    given = found["chosen"][f"{count} {method}"]
    cells = [found[cell_name("test", seed, count, method, given)] for seed in seeds]
    shares = _shares(found, seeds, count, [cell["scores"] for cell in cells])
    seconds = fmean(cell["seconds"] for cell in cells)
    what = f"`{method}` | {_looks_at(setting, method)} | {_told(shares)} | {seconds:.1f} | {settings_words(given)}"
    return _mean(shares), f"| {what} |"


def _polished_row(
    found: dict[str, Any], setting: Setting, seeds: Sequence[int], count: int, inputs: int
) -> tuple[float, str]:
    """The same of a polish."""
    cells = _curve_cells(found, seeds, count, inputs)
    shares = _shares(found, seeds, count, [cell["scores"] for cell in cells])
    looks = f"the base model; {inputs:,} {setting.words.unlabelled} of each task, no labels"
    chosen, seconds = found["chosen"], fmean(cell["seconds"] for cell in cells)
    how = {"steps": chosen["steps"], "learning_rate": chosen.get("rate"), **setting.polish}
    words = settings_words({f"polish.{name}": value for name, value in how.items() if value is not None})
    return _mean(shares), f"| `tsv_m`, polished | {looks} | {_told(shares)} | {seconds:.1f} | {words} |"


def _curve(found: dict[str, Any], setting: Setting, seeds: Sequence[int], inputs: Sequence[int]) -> str:
    """What a polish brings back of what the merge lost."""
    count = max(setting.counts)
    given = found["chosen"][f"{count} tsv_m"]
    start = _shares(found, seeds, count, [found[cell_name("test", s, count, "tsv_m", given)]["scores"] for s in seeds])
    lost = 100 - _mean(start)
    rows = [f"| 0 | {_told(start)} | |"]
    for number in inputs:
        shares = _shares(found, seeds, count, [cell["scores"] for cell in _curve_cells(found, seeds, count, number)])
        rows.append(f"| {number:,} | {_told(shares)} | {100 * (_mean(shares) - _mean(start)) / lost:.0f} % |")
    return (
        f"### What a polish brings back\n\nThe merge of {count} fine-tunes by `tsv_m`, polished on n "
        f"{setting.words.unlabelled} of each task without labels ({found['chosen']['steps']} steps"
        f"{', chosen on the tuning models' if len(setting.polishes) > 1 else ''}):\n\n"
        "| n | kept, interval | worst task | of what was lost, back |\n|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )


def _tried(found: dict[str, Any], setting: Setting) -> list[str]:
    """What the steps and the rate of a polish were chosen by, where there was a choice."""
    count, chosen, rows = max(setting.counts), found["chosen"], []

    def name(seed: int, steps: int, rate: float | None) -> str:
        if not steps:
            return cell_name("validation", seed, count, "tsv_m", chosen[f"{count} tsv_m"])
        return polish_name("validation", seed, count, "tsv_m", setting.tried_on, steps, rate)

    for steps, rate in [(0, None), *setting.polishes]:
        names = [name(seed, steps, rate) for seed in setting.tuning]
        if any(one not in found for one in names):
            continue
        shares = _shares(found, setting.tuning, count, [found[one]["scores"] for one in names], "validation")
        how = (("the default" if rate is None else f"{rate:g}") + " ") if steps else ""
        rows.append(f"| {steps} | {how}| {_mean(shares):.1f} | {fmean(map(min, shares)):.1f} |")
    if len(setting.polishes) == 1 or not rows:
        return []
    seeds = f"seed{'s' if len(setting.tuning) > 1 else ''} {', '.join(map(str, setting.tuning))}"
    told = f"""Steps and rate were chosen by what the tuning models ({seeds}) keep on validation examples, polished on
{setting.tried_on:,} {setting.words.unlabelled} of each task:"""
    heads = "\n| steps | learning rate | kept | worst task |\n|---:|---:|---:|---:|\n"
    return [filled(told) + heads + "\n".join(rows) + "\n"]


def _curve_cells(found: dict[str, Any], seeds: Sequence[int], count: int, inputs: int) -> list[dict[str, Any]]:
    return [found[_polish_name(found, seed, count, inputs)] for seed in seeds]


def _shares(
    found: dict[str, Any], seeds: Sequence[int], count: int, scores: Sequence[Sequence[float]], split: str = "test"
) -> list[list[float]]:
    """For each base model the share of every task, in percent."""
    shares = shares_of(found, [row[:count] for row in scores], count, seeds, split)
    return [[100 * share for share in row] for row in shares]


def _mean(shares: Sequence[Sequence[float]]) -> float:
    return fmean(map(fmean, shares))


def _told(shares: Sequence[Sequence[float]]) -> str:
    """The mean with half its interval over base models, of which one has none, and the worst task."""
    means = [fmean(row) for row in shares]
    half = f" ± {half_width(means):.1f}" if len(means) > 1 else ""
    return f"{fmean(means):.1f}{half} | {fmean(map(min, shares)):.1f}"


def _polish_name(found: dict[str, Any], seed: int, count: int, inputs: int) -> str:
    """The name of the cell of a test model, as it was chosen."""
    chosen = found["chosen"]
    return polish_name("test", seed, count, "tsv_m", inputs, chosen["steps"], chosen.get("rate"))


def polish_name(
    split: str, seed: int, count: int, method: str, inputs: int, steps: int, rate: float | None = None
) -> str:
    """The name of a cell of the curve of polish."""
    name = f"{split} {seed} {count} {method}, polished on {inputs} inputs of each task, {steps} steps"
    return name if rate is None else f"{name} at {rate:g}"
