"""Learned refinement moves what its options say, and refuses what does not fit."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.matching.learned import refined as refined_stages
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from tests.matching.refining import folded, inputs, planted, quiet, refined


def test_rotations_alone_stay_rotations():
    """Without general elements what lies inside heads is orthogonal to rounding; with them it is not."""
    models = planted()
    for general in (False, True):
        found = refined(models, inputs(models[0], 2), steps=4, general=general)
        element = found[1].element("layers.0.qk")
        error = float((element @ element.mT - torch.eye(element.shape[-1], dtype=torch.float64)).abs().max())
        assert error > 1e-3 if general else error < 1e-12


def test_only_chosen_spaces_are_learned():
    models = planted()
    description = folded(models[0])
    chosen = [s for s in description.spaces.values() if s.role == "attention.qk"]
    start = [Alignment.identity(description)] * 2
    found = run(
        refined_stages(models, description, start, inputs(models[0], 2), RefineOptions(steps=3), spaces=chosen), quiet
    )
    assert set(found[1].elements) == {s.name for s in chosen}


def test_another_anchor_stays():
    models = planted()
    description = folded(models[0])
    start = [Alignment.identity(description)] * 2
    found = run(
        refined_stages(models, description, start, inputs(models[0], 2), RefineOptions(steps=3), anchor=1), quiet
    )
    assert found[1].elements == {}
    assert found[0].elements


def test_models_that_agree_stay_as_they_are():
    """A step of Muon is of one size, however small the gradient; where the start has no higher loss it is kept."""
    model = planted()[0]
    found = refined([model, model], inputs(model, 2), steps=3)
    assert all(alignment.elements == {} for alignment in found)


def test_a_descent_that_comes_to_no_lower_loss_is_not_kept():
    """As with a rate that is far too high."""
    models = planted()
    found = refined(models, inputs(models[0], 2), steps=3, learning_rate=1e6)
    assert all(alignment.elements == {} for alignment in found)
    assert refined(models, inputs(models[0], 2), steps=20)[1].elements


BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"steps": 0}, "steps is 0"),
    ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"batch_size": 0}, "batch_size is 0"),
    ({"target": "teacher"}, "target is 'teacher'"),
    ({"concentration": -1.0}, "concentration is -1.0"),
    ({"edges": 1.5}, "edges is 1.5"),
    ({"every": -1}, "every is -1"),
    ({"seed": -1}, "seed is -1"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_options_are_checked_where_they_are_written(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        RefineOptions(**changes)


def test_what_does_not_fit_is_refused():
    models = planted()
    description, plain = folded(models[0]), blueprint(models[0])
    start, data = [Alignment.identity(description)] * 2, inputs(models[0], 1)
    with pytest.raises(InputError, match="1 alignments"):
        run(refined_stages(models, description, start[:1], data))
    with pytest.raises(InputError, match="another blueprint"):
        run(refined_stages(models, plain, start, data))
    with pytest.raises(InputError, match="3 sets of batches for 2 models"):
        run(refined_stages(models, description, start, (data, data, data)))
    with pytest.raises(InputError, match="no batch"):
        run(refined_stages(models, description, start, ([], [])))
    with pytest.raises(InputError, match="anchor is 2"):
        run(refined_stages(models, description, start, data, anchor=2))
    units = [s for s in description.spaces.values() if s.role == "ffn"]
    with pytest.raises(InputError, match="continuous space"):
        run(refined_stages(models, description, start, data, spaces=units))


def test_several_starts_as_one_text():
    """As the command line has them."""
    assert RefineOptions(starts="annealed, known").starts == ("annealed", "known")
    with pytest.raises(InputError, match="start is 'a'; expected one of"):
        RefineOptions(starts="a,known")
