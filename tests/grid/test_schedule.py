"""The order of cells that are made side by side."""

from collections.abc import Callable

from fusionlab.grid.design import Cell
from fusionlab.grid.places import Trained
from fusionlab.grid.schedule import Schedule


def ends(*names: str) -> list[Cell]:
    return [Cell((name,), "end model", "-", 0) for name in names]


def merges(group: str, *matchings: str, methods: tuple[str, ...] = ("simple", "fisher")) -> list[Cell]:
    return [Cell(tuple(group), method, matching, 0) for matching in matchings for method in methods]


def nothing(cell: Cell) -> set[Trained]:
    return set()


def needs(untrained: set[Trained]) -> Callable[[Cell], set[Trained]]:
    """What cells would train, of a set that shrinks as models are trained."""
    return lambda cell: {(name, cell.seed) for name in cell.models} & untrained


def test_an_end_model_is_trained_by_one_cell() -> None:
    """Cells that need it wait until it is there; those that do not go first."""
    untrained = {("a", 0), ("b", 0)}
    cells = [*ends("a", "b", "c"), *merges("ab", "none"), *merges("ac", "none")]
    schedule = Schedule(cells, needs(untrained))
    assert [schedule.start() for _ in range(4)] == [*ends("a", "b", "c"), None]
    schedule.end(ends("c")[0])
    assert schedule.start() is None
    untrained.remove(("a", 0))
    schedule.end(ends("a")[0])
    assert [schedule.start() for _ in range(3)] == [*merges("ac", "none"), None]
    untrained.remove(("b", 0))
    schedule.end(ends("b")[0])
    assert [schedule.start() for _ in range(3)] == [*merges("ab", "none"), None]
    assert len(schedule) == 0


def test_a_model_whose_cell_ended_without_it_is_trained_by_the_next_alone() -> None:
    schedule = Schedule([*ends("a"), *merges("ab", "none")], needs({("a", 0)}))
    first = schedule.start()
    assert first == ends("a")[0]
    schedule.end(first)
    assert [schedule.start(), schedule.start()] == [merges("ab", "none")[0], None]


def test_groups_are_spread_and_stay_together() -> None:
    """Two that make cells side by side each take a group, and the next cell of it when one is finished."""
    cells = [*merges("ab", "paper"), *merges("ac", "paper"), *merges("bc", "paper")]
    schedule = Schedule(cells, nothing)
    assert [schedule.start(), schedule.start()] == [cells[0], cells[2]]
    schedule.end(cells[2])
    assert schedule.start() == cells[3]
    schedule.end(cells[3])
    assert schedule.start() == cells[4]
    schedule.end(cells[0])
    assert schedule.start() == cells[1]


def test_of_one_group_other_matchings_go_first() -> None:
    cells = merges("ab", "none", "paper")
    schedule = Schedule(cells, nothing)
    assert [schedule.start() for _ in range(5)] == [cells[0], cells[2], cells[1], cells[3], None]
