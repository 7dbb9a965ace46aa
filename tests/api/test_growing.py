"""Models of different sizes in Python: grown by themselves where they are matched, with a warning that says so."""

from pathlib import Path

import pytest
import torch
from torch import nn

import fusionlab
from fusionlab.evaluation.distance import parameter_distance
from tests.api.models import closeness
from tests.commands.small import bert, vit
from tests.symmetry.models import generator

LARGER = {"hidden_size": 24, "num_hidden_layers": 3, "intermediate_size": 40}
SAID = (
    r"different sizes, so that model 0 \(residual 16 to 24, .*, layers 2 to 3; .* of a pass\) was grown; logits in "
    r"float64 differ by"
)


def planted() -> tuple[nn.Module, nn.Module, nn.Module]:
    """A small model, the same grown, and that in a random basis; float64."""
    small = vit(0).double()
    twin = fusionlab.grow(small, vit(1, **LARGER))
    folded = fusionlab.blueprint(twin).after_folding
    assert folded is not None
    return small, twin, fusionlab.Alignment.random(folded, generator(2)).apply(twin)


def test_grow_computes_the_same() -> None:
    small = vit(0)
    twin = fusionlab.grow(small, vit(1, **LARGER))
    assert closeness(twin, small) < 1e-5
    assert twin.config.hidden_size == 24


def test_a_planted_pair_is_found_again() -> None:
    """To distance 0, and the mean of both computes what the small model does; no mean of the unmatched does."""
    small, twin, moved = planted()
    with pytest.warns(UserWarning, match=SAID):
        found = fusionlab.align([small, moved], anchor=1, preset="weights")
    before = parameter_distance(twin.state_dict(), moved.state_dict())
    assert parameter_distance(*(model.state_dict() for model in found)) < 1e-6 * before
    assert closeness(fusionlab.merge(found), small) < 1e-6
    assert closeness(fusionlab.merge([twin, moved]), small) > 0.1


def test_a_model_merged_with_its_own_grown_twin_is_itself() -> None:
    small, twin, _ = planted()
    with pytest.warns(UserWarning, match=SAID):
        merged = fusionlab.fuse([small, twin], "weights")
    assert closeness(merged, small) < 1e-8


def test_twins_across_sizes_keep_their_functions_and_have_one_size() -> None:
    """As many at once as there are, to the largest of each dimension; the small model's layers placed by the data."""
    models = [vit(0), vit(1, hidden_size=24), vit(2, num_hidden_layers=3)]
    data = [{"pixel_values": torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))}]
    with pytest.warns(UserWarning, match="model 0 .* and model 1 .* and model 2 .* were grown"):
        twins = fusionlab.align(models, preset="learned", data=data, steps=2, batch_size=8)
    assert all(closeness(twin, model) < 1e-4 for twin, model in zip(twins, models, strict=True))
    shapes = [[parameter.shape for parameter in twin.parameters()] for twin in twins]
    assert shapes[0] == shapes[1] == shapes[2]


def test_all_grow_to_a_config_that_is_given() -> None:
    models, larger = [vit(0), vit(1, hidden_size=20)], vit(2, **LARGER).config
    with pytest.warns(UserWarning, match="model 0 .* and model 1 .* were grown"):
        twins = fusionlab.align(models, preset="weights", like=larger)
    assert all(closeness(twin, model) < 1e-4 for twin, model in zip(twins, models, strict=True))
    assert {twin.config.hidden_size for twin in twins} == {24}


def test_the_line_between_two_sizes_has_their_losses_at_its_ends() -> None:
    models = [vit(0), vit(1, **LARGER)]
    data = [{"pixel_values": torch.randn(8, 1, 8, 8), "labels": torch.arange(8)}]
    with pytest.warns(UserWarning, match=SAID):
        line = fusionlab.barrier(*models, data, points=3)
    ends = [model(**data[0]).loss.item() for model in models]
    assert [line.loss[0], line.loss[-1]] == pytest.approx(ends, rel=1e-4)


def test_a_base_of_the_small_model_does_not_fit_the_grown_one() -> None:
    with pytest.warns(UserWarning, match=SAID), pytest.raises(fusionlab.InputError, match="the base model"):
        fusionlab.fuse([vit(0), vit(1, **LARGER)], method="ties", base=vit(2))


def test_sizes_that_cannot_become_one_are_refused() -> None:
    wide = bert(1)
    config = wide.config
    config.hidden_size = 24
    with pytest.raises(fusionlab.InputError, match="expected a whole multiple of 16"):
        fusionlab.align([bert(0), type(wide)(config)])


def test_paths_grow_as_modules_do(tmp_path: Path) -> None:
    for name, model in (("small", vit(0)), ("large", vit(1, **LARGER))):
        fusionlab.save(model, tmp_path / name)
    twin = fusionlab.grow(tmp_path / "small", str(tmp_path / "large"))
    assert closeness(twin, vit(0)) < 1e-5


def test_shrinking_takes_back_what_growing_did_and_learns_where_there_are_data() -> None:
    small, large = vit(0), vit(1, **LARGER)
    assert closeness(fusionlab.shrink(fusionlab.grow(small, large), like=small.config), small) < 1e-4
    data = [{"pixel_values": torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))}]
    left, learned = fusionlab.shrink(large, small), fusionlab.shrink(large, small, data, steps=5)
    wanted, before, after = (model(**data[0]).logits.softmax(-1).detach() for model in (large, left, learned))
    assert float((after - wanted).norm()) < float((before - wanted).norm())
