"""``fusionlab merge`` of models in memory: what a method chose is told wherever somebody looks."""

import json
import re
from pathlib import Path

from tests.commands.conftest import Command
from tests.commands.test_lora import family

__all__ = ["family"]

SOUP = ("--method", "soup", "--probes", "Digits", "--samples", 40)


def test_a_soup_tells_which_models_it_kept(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """On the terminal, in the document for machines and in the model card, by the names of the models."""
    models = [ckpts / name for name in "abc"]
    outcome = command("merge", *models, *SOUP, "--names", "x", "y", "z", "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    told = re.search(r"soup: (Kept [xyz, and]+ of 3 models.*?)\. ", outcome.out)
    assert told is not None, outcome.out
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| found by the method | {told[1]} |" in card
    outcome = command("merge", *models, *SOUP, "--names", "x", "y", "z", "--output", tmp_path / "again", "--json")
    assert f"soup: {told[1]}." in json.loads(outcome.out)["notes"]


def test_inputs_that_nothing_looks_at_are_told(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The plain mean of models without BatchNorm looks at none; RegMean++ runs the models on them."""
    for method, is_told in (("simple", True), ("regmean_pp", False)):
        given = ("--method", method, "--probes", "Digits", "--samples", 20, "--output", tmp_path / method, "--json")
        outcome = command("merge", ckpts / "a", ckpts / "b", *given)
        assert outcome.code == 0, outcome.err
        notes = json.loads(outcome.out)["notes"]
        assert ("Nothing looked at the inputs that --probes names." in notes) == is_told


def test_coefficients_of_an_adapter_are_told_too(family: Path, command: Command) -> None:
    """Beside the shares of the merge that the adapter captures."""
    given = ("--method", "adamerging", "--hyperparameters.steps", 1, "--probes", "tokens", "--samples", 4)
    options = ("--base", family / "base", "--as", "lora", "--rank", 4, *given)
    outcome = command("merge", family / "one", family / "two", *options, "--output", family / "out", "--json")
    assert outcome.code == 0, outcome.err
    (note,) = json.loads(outcome.out)["notes"]
    assert note.startswith("adamerging: Coefficients of the task vectors are, ")
    card = (family / "out" / "README.md").read_text()
    assert f"| found by the method | {note.removeprefix('adamerging: ').removesuffix('.')} |" in card
    shown = command("merge", family / "one", family / "two", *options, "--output", family / "again").out
    assert note in shown
