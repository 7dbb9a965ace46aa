"""Options reach what they are about: each command has those that do something there, and no others."""

from pathlib import Path
from typing import Any

import pytest

from fusionlab.commands import barrier, compare, data_options, parsing
from fusionlab.errors import InputError
from fusionlab.experiment import Plan
from fusionlab.inputs import Inputs
from tests.commands.conftest import Command
from tests.commands.small import bert, vit


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        (["--probes", "synthetic"], "4000 synthetic inputs"),
        (["--probes", "synthetic", "--samples", "1000"], "1000 synthetic inputs"),
        (["--probes", "synthetic", "--samples", "null"], "4000 synthetic inputs"),
        (["--probes", "Digits"], "1000 training samples"),
        (["--probes", "Digits", "--samples", "null"], "1000 training samples"),
        (["--probes", "Digits", "--samples", "1200"], "1200 training samples"),
    ],
    ids=str,
)
def test_samples(monkeypatch: pytest.MonkeyPatch, options: list[str], drawn: str) -> None:
    """As many as asked for; where none are, one number for data and another for synthetic inputs."""
    monkeypatch.setattr("fusionlab.inputs.probes", lambda *arguments, **options: [])
    parser = parsing.make_parser("test", "")
    data_options.add_inputs(parser)
    found = data_options.inputs(parsing.parse(parser, options), [vit(0), vit(1)], ["nowhere"])
    assert found is not None
    assert found.described.startswith(drawn)


def test_length_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of synthetic ones, as it is given; refused with images, and with data."""
    given: list[Any] = []
    monkeypatch.setattr("fusionlab.inputs.probes", lambda *arguments, **options: given.append(options["length"]))
    parser = parsing.make_parser("test", "")
    data_options.add_inputs(parser)

    def told(models: list[Any], *line: str) -> None:
        data_options.inputs(parsing.parse(parser, list(line)), models, ["nowhere"])

    texts, images = [bert(0), bert(1)], [vit(0), vit(1)]
    told(texts, "--probes", "tokens", "--length", "12")
    told(texts, "--probes", "tokens")
    assert given == [12, None]
    with pytest.raises(InputError, match="length is 12, of texts, but the models take no text"):
        told(images, "--probes", "synthetic", "--length", "12")
    with pytest.raises(InputError, match="length is 12, of synthetic texts, but inputs are 1000 training samples of"):
        told(texts, "--probes", "Digits", "--length", "12")


def test_barrier_passes_its_seed_on(ckpts: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the plan, whose fusion draws by it."""

    def stop(models: Any, data: Any, plan: Plan, title: str, inputs: Inputs | None) -> None:
        raise InputError(f"the seed is {plan.seed}")

    monkeypatch.setattr(barrier, "run_experiment", stop)
    outcome = command("barrier", ckpts / "a", ckpts / "b", "--data", "Digits", "--seed", "5")
    assert outcome.err.endswith("the seed is 5\n")


@pytest.mark.parametrize("name", ["method", "seed", "match", "accelerator", "points", "heads", "hyperparameters"])
def test_a_null_is_no_value(tmp_path: Path, command: Command, name: str) -> None:
    """Of an option that has a value if nothing is said."""
    (tmp_path / "null.yaml").write_text(f"{name}: null\n")
    line = ("fuse", "--config", tmp_path / "null.yaml", "--ckpts", "a", "b", "--output", tmp_path / "out")
    outcome = command(*line)
    assert outcome.code == 2
    assert f"{name} is null; expected a value, such as" in outcome.err


def test_a_null_that_means_something(tmp_path: Path) -> None:
    """All samples, in a grid that would otherwise draw some."""
    (tmp_path / "all.yaml").write_text("samples: null\nend_models: {}\noutput: out\n")
    parser = compare.make_parser("compare", "")
    assert parsing.parse(parser, ["--config", str(tmp_path / "all.yaml")]).samples is None


@pytest.mark.parametrize("seed", [-1, 2**32, 10**20])
@pytest.mark.parametrize("line", ["merge a b --output out", "fit --config vit_digits.yaml"])
def test_seeds_that_no_generator_takes(command: Command, line: str, seed: int) -> None:
    """Too large or negative, by either of the two kinds of commands."""
    outcome = command(*line.split(), "--seed", str(seed))
    assert outcome.code == 2
    assert f"seed is {seed}; expected a whole number from 0 to 4294967295" in outcome.err


@pytest.mark.parametrize("name", ["match", "accelerator", "points"])
def test_a_list_is_not_one_value(tmp_path: Path, command: Command, name: str) -> None:
    """Refused as what it is, by the name of its option."""
    (tmp_path / "list.yaml").write_text(f"{name}: [1, a]\n")
    outcome = command("fuse", "--config", tmp_path / "list.yaml", "--ckpts", "a", "b", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert name in outcome.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ckpts: []", "no end model was given; expected checkpoints"),
        ("ckpts: [A, B]\nmethod: []", "method is an empty list; expected a merge method, or several"),
    ],
)
def test_an_empty_list_is_refused(ckpts: Path, tmp_path: Path, command: Command, text: str, told: str) -> None:
    """As a config may have it."""
    config = text.replace("A", str(ckpts / "a")).replace("B", str(ckpts / "b"))
    (tmp_path / "empty.yaml").write_text(f"{config}\n")
    outcome = command("fuse", "--config", tmp_path / "empty.yaml", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert told in outcome.err
