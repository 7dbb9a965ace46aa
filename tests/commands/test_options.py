"""Options reach what they are about: each command has those that do something there, and no others."""

from pathlib import Path
from typing import Any

import pytest

from fusionlab.commands import barrier, data_options, parsing
from fusionlab.errors import InputError
from fusionlab.experiment import Plan
from fusionlab.inputs import Inputs
from tests.commands.conftest import Command
from tests.commands.small import vit


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


def test_barrier_passes_its_seed_on(ckpts: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the plan, whose fusion draws by it."""

    def stop(models: Any, data: Any, plan: Plan, title: str, inputs: Inputs | None) -> None:
        raise InputError(f"the seed is {plan.seed}")

    monkeypatch.setattr(barrier, "run_experiment", stop)
    outcome = command("barrier", ckpts / "a", ckpts / "b", "--data", "Digits", "--seed", "5")
    assert outcome.err.endswith("the seed is 5\n")
