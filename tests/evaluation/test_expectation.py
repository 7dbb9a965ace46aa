"""Advice against measurements: near chance, near the end models, and what matching does, by the numbers."""

from dataclasses import replace

import pytest

from fusionlab.evaluation import expectation
from fusionlab.evaluation.results import Results
from tests.evaluation.examples import judged
from tests.evaluation.merges import PAPER, PLAIN


def against_expectation(results: Results, are_apart: bool) -> str | None:
    """What is said, with plain spaces."""
    found = expectation.against_expectation(results, are_apart)
    return None if found is None else found.replace("\N{NO-BREAK SPACE}", " ")


def test_models_apart_whose_mean_is_near_chance() -> None:
    told = against_expectation(judged({PLAIN: 0.18, PAPER: 0.95}), are_apart=True)
    assert told == (
        "Measured, as expected: the unmatched merge is nearer to chance than to the end models on digits (in domain) "
        "with 18.0 % accuracy (chance 10.0 %, end models 95.2 %)."
    )


def test_models_apart_whose_mean_is_good() -> None:
    """It is said that this was not expected."""
    told = against_expectation(judged({PLAIN: 0.9, PAPER: 0.95}), are_apart=True)
    assert told is not None
    assert told == (
        "Measured, not as expected: the unmatched merge is nearer to the end models than to chance on digits (in "
        "domain) with 90.0 % accuracy (chance 10.0 %, end models 95.2 %)."
    )


@pytest.mark.parametrize(
    ("matched", "words"),
    [
        (0.9, "Measured, as expected: matching by paper makes no difference that 400 examples show on digits"),
        (
            0.95,
            "Measured, not as expected: matching by paper helps on digits (in domain) by +5.0 points (95 % interval",
        ),
        (0.8, "Measured, not as expected: matching by paper costs on digits (in domain) by \N{MINUS SIGN}10.0 points"),
    ],
)
def test_models_that_share_a_basis(matched: float, words: str) -> None:
    """What matching changes is what is held against it."""
    told = against_expectation(judged({PLAIN: 0.9, PAPER: matched}, kept=PAPER), are_apart=False)
    assert told is not None
    assert told.startswith(words)


def test_several_methods() -> None:
    """It says of which one: the best of those that were not matched, and the one that is kept of those that were."""
    ties, matched = ("ties", "none"), ("ties", "paper")
    told = against_expectation(judged({ties: 0.12, PLAIN: 0.18}, kept=ties), are_apart=True)
    assert told == (
        "Measured, as expected: the best unmatched merge is nearer to chance than to the end models on digits (in "
        "domain) with 18.0 % accuracy by plain averaging (chance 10.0 %, end models 95.2 %)."
    )
    scores = {PLAIN: 0.9, ties: 0.9, PAPER: 0.9, matched: 0.95}
    told = against_expectation(judged(scores, kept=matched), are_apart=False)
    assert told is not None
    assert "matching by paper of `ties` helps on digits" in told


def test_several_data_sets() -> None:
    sets = (("digits", "in"), ("letters", "out"))
    told = against_expectation(judged({PLAIN: 0.18}, sets=sets), are_apart=True)  # type: ignore[arg-type]
    assert told is not None
    assert told.count("nearer to chance") == 1
    assert "on digits (in domain) with 18.0 %" in told
    assert "and on letters (out of domain) with 18.0 %" in told


def test_nothing_to_hold_it_against() -> None:
    """No merge, none that was matched, none with a score, end models at chance themselves."""
    assert against_expectation(judged({PLAIN: 0.1}, ends=(0.1, 0.1)), are_apart=True) is None
    assert against_expectation(judged({}), are_apart=True) is None
    assert against_expectation(judged({PLAIN: 0.9}), are_apart=False) is None
    assert against_expectation(judged({PLAIN: 0.9}, broken=[PLAIN]), are_apart=True) is None


def test_perplexities_are_compared_as_losses_are() -> None:
    """A merge of 8,000 lies nearer to a guess among 50,257 than to models of 20 and 22, by their logarithms alone."""
    measured = judged({PLAIN: 0.18})
    values = {"end model": 20.0, "simple": 8000.0}
    rows = [
        replace(row, metric="perplexity", value=values[row.method]) for row in measured.rows if row.metric == "accuracy"
    ]
    levels = [replace(one, metric="perplexity", chance=50257.0) for one in measured.levels if one.metric == "accuracy"]
    told = against_expectation(replace(measured, rows=rows, levels=levels, comparisons=[]), are_apart=True)
    assert told is not None
    assert told.startswith("Measured, as expected: the unmatched merge is nearer to chance than to the end models")
