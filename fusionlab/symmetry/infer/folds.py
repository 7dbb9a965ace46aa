"""Gains that can be folded, and their places: read off the powers by which factors act along one space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from fusionlab.symmetry.blueprint import LayerScale, Norm, Reader
from fusionlab.symmetry.infer.dims import Stretch, Variable
from fusionlab.symmetry.infer.interpreter import Reading

Folds = tuple[tuple[Norm, ...], tuple[LayerScale, ...]]


def folds_of(
    reading: Reading, variable: Variable, gains: Sequence[Stretch], solutions: Sequence[Mapping[Stretch, object]]
) -> Folds | None:
    """The folds by which every gain of a space becomes one.

    A factor that acts on one gain alone and is undone by what reads it is a norm's; one undone by what writes, a layer
    scale's.

    Args:
        variable: the space.
        gains: its stretches that gains are.
        solutions: a basis of the powers that leave the outputs.

    Returns:
        Norms and layer scales; None where some gain has no place to go.
    """
    norms, scales = [], []
    for gain, solution in _by_gain(gains, solutions).items():
        if solution is None:
            return None
        with_it = [s for s, power in solution.items() if power == 1 and s != gain]
        against = [s for s, power in solution.items() if power == -1]
        parts = reading.notes.parts
        vectors = all(s not in parts and len(reading.parameters[s[0]]) == 1 for s in with_it)
        if len(with_it) + len(against) + 1 < len(solution) or not against or not vectors:
            return None
        if all(s in reading.notes.readers or s in parts for s in against) and len(with_it) <= 1:
            readers = tuple(_readers(reading, against))
            bias = with_it[0][0] if with_it else None
            offset = reading.notes.offsets.get(gain[0], 0.0)
            norms.append(Norm(gain[0], bias, readers, variable in reading.notes.padded, offset))
            continue
        maps = [s for s in against if s in reading.notes.writers]
        rest = [s[0] for s in against if s not in maps]
        if with_it or len(maps) != 1 or any(reading.notes.biases.get(maps[0][0]) != name for name in rest):
            return None
        scales.append(LayerScale(gain[0], maps[0][0]))
    # Of what is read in several copies side by side, as by Swin's reductions, each copy says the same.
    return tuple(dict.fromkeys(norms)), tuple(dict.fromkeys(scales))


def _readers(reading: Reading, stretches: Sequence[Stretch]) -> Iterator[Reader]:
    """The weights that a gain goes into; of what is read by rows, these, neighbours as one."""
    everything = (0, 0)
    spans: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for stretch in stretches:
        (name, dim, _), rows = reading.notes.parts.get(stretch, (stretch, everything))
        spans.setdefault((name, dim), set()).add(rows)
    for (name, dim), found in spans.items():
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(found):
            first = joined.pop()[0] if joined and joined[-1][1] == start else start
            joined.append((first, stop))
        whole = everything in found or joined == [(0, reading.traced.state[name].shape[0])]
        yield from [Reader(name, dim)] if whole else [Reader(name, dim, rows) for rows in joined]


def _by_gain(
    gains: Sequence[Stretch], solutions: Sequence[Mapping[Stretch, object]]
) -> dict[Stretch, dict[Stretch, Fraction] | None]:
    """For every gain the solution in which it has power one and all others zero, or None."""
    rows = [{key: Fraction(value) for key, value in solution.items()} for solution in solutions]  # type: ignore[call-overload]
    pivots: dict[Stretch, dict[Stretch, Fraction]] = {}
    for gain in gains:
        row = next((r for r in rows if r.get(gain)), None)
        if row is None:
            continue
        rows.remove(row)
        row = {key: value / row[gain] for key, value in row.items()}
        rows = [_minus(other, row, gain) for other in rows]
        pivots = {key: _minus(other, row, gain) for key, other in pivots.items()} | {gain: row}
    return {gain: pivots.get(gain) if _alone(gain, pivots.get(gain), gains) else None for gain in gains}


def _alone(gain: Stretch, solution: Mapping[Stretch, Fraction] | None, gains: Sequence[Stretch]) -> bool:
    return solution is not None and not any(solution.get(other) for other in gains if other != gain)


def _minus(x: dict[Stretch, Fraction], row: Mapping[Stretch, Fraction], at: Stretch) -> dict[Stretch, Fraction]:
    times = x.get(at, Fraction(0))
    if not times:
        return x
    out = {key: x.get(key, Fraction(0)) - times * row.get(key, Fraction(0)) for key in x.keys() | row.keys()}
    return {key: value for key, value in out.items() if value}
