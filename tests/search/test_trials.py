"""Trials of a search: the same for the same seed, and gone on with where they were cut."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fusionlab.errors import InputError
from fusionlab.search import SearchOptions, Settings, Space, Trial, Trials

pytest.importorskip("optuna")
pytest.importorskip("cmaes")


def score(settings: Settings) -> float:
    """Best at a factor of 2 and the first model alone; a method refuses small factors."""
    factor = settings.hyperparameters["lambda_"]
    return math.nan if factor < 0.4 else -((factor - 2) ** 2) + settings.weights[0]


def searched(most: int = 12, of: str = "", **options: Any) -> list[Trial]:
    """The trials of a search that is cut after some."""
    how = SearchOptions(**({"trials": 12, "seed": 3} | options))
    trials = Trials(Space.of("task_arithmetic", 2, how), how, of)
    while len(trials.done) < most and (settings := trials.ask()) is not None:
        trials.tell(score(settings), {"data": 0.5}, 0.25)
    return trials.done


def same(first: list[Trial], second: list[Trial]) -> bool:
    return [trial.point for trial in first] == [trial.point for trial in second]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_search_that_was_cut_makes_the_trials_of_one_that_was_not(sampler: str, tmp_path: Path) -> None:
    """From the journal; the first trial has the settings as given, and another seed tries others."""
    whole = searched(sampler=sampler)
    assert (whole[0].settings.hyperparameters, whole[0].settings.weights) == ({"lambda_": 1.0}, [0.5, 0.5])
    kept = str(tmp_path / "made" / "journal")
    assert same(searched(7, sampler=sampler, journal=kept), whole[:7])
    again = searched(sampler=sampler, journal=kept)
    assert same(again, whole)
    assert (again[0].scores, again[0].seconds) == ({"data": 0.5}, 0.25)
    assert not same(searched(sampler=sampler, seed=4), whole)


def test_a_journal_holds_several_searches(tmp_path: Path) -> None:
    """Of other models too: trials of one are not taken for those of another."""
    kept = str(tmp_path / "journal")
    first = searched(of="these models", journal=kept)
    assert len(searched(3, of="others", journal=kept)) == 3
    assert same(searched(0, of="these models", journal=kept), first)


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a journal\n")
    with pytest.raises(InputError, match="notes of a search cannot be read or written"):
        searched(journal=str(tmp_path / "notes"))


def test_the_best_trial_is_the_first_of_the_highest_finite_score() -> None:
    """It is in the file, with how often merges were scored."""
    how = SearchOptions(trials=4, over={"lambda_": None})
    trials = Trials(Space.of("task_arithmetic", 2, how), how)
    for value in (0.5, math.nan, 0.75, 0.75):
        assert trials.ask() is not None
        trials.tell(value)
    assert trials.ask() is None
    found = trials.found("by hand")
    assert found.best is found.trials[2]
    told = json.loads(found.to_json())
    assert (told["best"], told["evaluations"], told["search"]) == (2, 4, "by hand")
    assert [row["score"] for row in told["trials"]] == [0.5, None, 0.75, 0.75]
    assert told["trials"][2]["settings"] == {"lambda_": found.best.point["lambda_"]}


def test_no_finite_score_is_told() -> None:
    how = SearchOptions(trials=1)
    trials = Trials(Space.of("task_arithmetic", 2, how), how)
    trials.ask()
    trials.tell(math.inf)
    with pytest.raises(InputError, match="no settings of 'task_arithmetic' with a finite score in 1 trials"):
        _ = trials.found().best


def test_the_first_trial_has_the_settings_as_given_wherever_they_lie(tmp_path: Path) -> None:
    """Outside of the range too; the search then goes on in it, and so does one that was cut."""
    how = SearchOptions(trials=3, over={"lambda_": [0.5, 1]}, journal=str(tmp_path / "journal"))

    def trials() -> Trials:
        return Trials(Space.of("task_arithmetic", 2, how, {"lambda_": 2.5}), how)

    first = trials()
    for value in (0.5, 0.75, 0.25):
        assert first.ask() is not None
        first.tell(value)
    factors = [trial.settings.hyperparameters["lambda_"] for trial in first.done]
    assert factors[0] == 2.5
    assert all(0.5 <= factor <= 1 for factor in factors[1:])
    assert trials().done == first.done


def test_a_journal_is_made_with_the_first_score(tmp_path: Path) -> None:
    """Trials that were refused before are in it then; of several the first reason is told."""
    how = SearchOptions(trials=3, journal=str(tmp_path / "journal"))
    trials = Trials(Space.of("task_arithmetic", 2, how), how)
    for reason in ("too small", "too large"):
        trials.ask()
        trials.tell(math.nan, refusal=reason)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"with a finite score in 2 trials \(too small\); expected over"):
        _ = trials.found().best
    trials.ask()
    trials.tell(0.5)
    assert [trial.refusal for trial in Trials(trials.space, how).done] == ["too small", "too large", ""]
