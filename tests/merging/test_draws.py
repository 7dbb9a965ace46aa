"""Random numbers by seed, name and place."""

import torch

from fusionlab.merging.draws import drawn
from fusionlab.merging.ingredients import PIECE, Ingredients


def ingredients(sizes: dict[str, int], seed: int = 0, start: int = 0, models: int = 2) -> Ingredients:
    """Models of zeros with vectors of some sizes."""
    states = [{name: torch.zeros(size) for name, size in sizes.items()} for _ in range(models)]
    return Ingredients(states, [1 / models] * models, None, (), None, None, seed, start)


def test_what_numbers_depend_on() -> None:
    """The seed, the parameter's name, the model's place and the entry's, and nothing else."""
    found = drawn(ingredients({"a": 9, "b": 9}), "a")
    assert torch.equal(found, drawn(ingredients({"a": 9}, models=2), "a"))
    assert torch.equal(found[:1], drawn(ingredients({"a": 9}, models=1), "a"))
    others = [drawn(ingredients({"a": 9}, seed=1), "a"), drawn(ingredients({"b": 9}), "b"), found.flip(0)]
    assert not any(torch.equal(found, other) for other in others)


def test_pieces_of_a_parameter_draw_what_the_whole_does() -> None:
    """A file that is merged piece by piece gets the numbers of the parameter in memory."""
    whole = drawn(ingredients({"a": 2 * PIECE + 5}, models=1), "a")[0]
    pieces = [
        drawn(ingredients({"a": size}, start=start, models=1), "a")[0]
        for start, size in ((0, PIECE), (PIECE, PIECE), (2 * PIECE, 5))
    ]
    assert torch.equal(whole, torch.cat(pieces))
    assert 0.49 < float(whole.mean()) < 0.51
