"""`fusionlab barrier` draws the line between two models, unmatched and matched."""

import json
import re
from pathlib import Path

import pytest

import fusionlab
from fusionlab import checkpoints
from fusionlab.data import Digits
from tests.commands.conftest import Command


@pytest.mark.parametrize("points", [11, 3])
def test_table(ckpts: Path, tmp_path: Path, command: Command, points: int) -> None:
    """One line for each position and one for the barriers, with the numbers of the Python call."""
    outcome = command("barrier", ckpts / "a", ckpts / "b", "--data", "Digits", "--points", points)
    assert (outcome.code, outcome.err) == (0, "")
    data = Digits().test_dataloader()
    a, b = (checkpoints.load(ckpts / name) for name in "ab")
    plain, matched = (fusionlab.barrier(a, other, data, points) for other in (b, fusionlab.match(b, a).apply(b)))
    for index, position in enumerate(plain.positions):
        numbers = [
            f"{position:.2f}",
            *(text for c in (plain, matched) for text in (f"{c.loss[index]:.3f}", f"{100 * c.score[index]:.1f} %")),
        ]
        assert re.search(r"\s*│\s*".join(map(re.escape, numbers)), outcome.out), numbers
    assert len(re.findall(r"│ \d\.\d\d │", outcome.out)) == points
    assert re.search(rf"barrier\s*│\s*{plain.barrier:.3f}\s*│\s*│\s*{matched.barrier:.3f}", outcome.out)
    assert list(tmp_path.iterdir()) == []


def test_output_and_no_matching(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """With --output the report is written, and --match none leaves only the unmatched line."""
    arguments = ("barrier", ckpts / "a", ckpts / "b", "--data", "Digits", "--points", "3", "--match", "none")
    assert command(*arguments, "--output", tmp_path / "out").code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.json", "results.csv", "report.html", "plots", "tensorboard",
    }  # fmt: skip
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["matching"] for row in rows if row["metric"] == "barrier"] == ["none"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "fusionlab barrier" in report
    # No test example, as nothing was asked for that shows some.
    assert "Where the models differ" not in report
