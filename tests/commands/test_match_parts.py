"""Matching of spaces that meet, with both models on the disk: it is what is made in memory."""

from pathlib import Path

import pytest

from tests.commands.conftest import Command
from tests.commands.test_match_stream import both, model, numbers, same_files, saved


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LlamaForCausalLM", []),
        ("BertForSequenceClassification", ["--start", "known", "--gauge", "none", "--relative", "0"]),
    ],
    ids=["rotated and annealed", "permuted"],
)
def test_what_meets_is_matched_where_it_lies(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    """The stream with all other spaces: twins, alignments and distances are those of models in memory, to rounding."""
    places = saved(tmp_path, model(name, 0), model(name, 1))
    line = [places[0], "--anchor", places[1], "--match", "weights", *options]
    first, second = both(command, monkeypatch, tmp_path, *line)
    same_files(tmp_path / "memory", tmp_path / "parts", 2e-4)
    assert numbers(second) == pytest.approx(numbers(first), abs=2e-4)
