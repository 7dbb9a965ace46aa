"""Grids of models whose heads differ: each its own, or joined by label name."""

from pathlib import Path

import pytest
from torch import nn

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.fusion import Heads
from fusionlab.grid.design import EndModel
from fusionlab.grid.summary import OWN, summarize
from tests.commands.small import bert
from tests.grid.toys import BOTH, Words, grid, runner


def test_own_heads(tmp_path: Path) -> None:
    """Tasks that differ: each test set is answered under its own model's head, and there is no ensemble."""
    ends = {}
    for index, (name, classes) in enumerate((("a", 2), ("b", 3))):
        model = bert(index)
        model.classifier = nn.Linear(16, classes)
        model.num_labels = model.config.num_labels = classes
        checkpoints.save(model, tmp_path / name)
        ends[name] = EndModel(Words(name, classes=classes), ckpt=str(tmp_path / name))
    finished = list(runner(grid(ends, heads="own", methods=BOTH), tmp_path / "out").run())
    assert not [done.error for done in finished if done.error]
    assert {done.cell.method for done in finished} == {"end model", "simple", "regmean"}
    assert all({row.data_set for row in done.rows} == set(done.cell.models) for done in finished)
    for name, value in (("out_of_domain", (Words("c"),)), ("multitask", EndModel(Words("d"), ckpt="d"))):
        with pytest.raises(InputError, match=f"heads is 'own', and {name} has no head of its own"):
            grid(ends, heads="own", **{name: value})


class Named(Words):
    """Random words whose labels have names."""

    def __init__(self, name: str, class_names: list[str]) -> None:
        super().__init__(name, classes=len(class_names), seed=ord(name))
        self.class_names = class_names


def test_union_heads(tmp_path: Path) -> None:
    """Labels that differ: no mean of outputs, no level that end models were measured at on one set only."""
    ends = {}
    for index, (name, labels) in enumerate((("a", ["joy", "fear"]), ("b", ["anger", "joy", "love"]))):
        model = bert(index)
        model.classifier = nn.Linear(16, len(labels))
        model.num_labels = model.config.num_labels = len(labels)
        model.config.id2label = dict(enumerate(labels))
        checkpoints.save(model, tmp_path / name)
        ends[name] = EndModel(Named(name, labels), ckpt=str(tmp_path / name))
    given = grid(ends, heads="union", methods=BOTH)
    assert {cell.method for cell in given.cells()} == {"end model", "simple", "regmean"}
    finished = list(runner(given, tmp_path / "out").run())
    assert not [done.error for done in finished if done.error]
    assert {line.method for line in summarize(finished)} == {OWN, "simple", "regmean"}


@pytest.mark.parametrize("heads", ["own", "union"])
def test_lines_need_one_head(heads: Heads) -> None:
    """The line's models would answer for labels that are not theirs."""
    ends = {name: EndModel(Words(name), ckpt=name) for name in "ab"}
    with pytest.raises(InputError, match=f"points is 3 and heads is '{heads}'"):
        grid(ends, heads=heads, points=3)
