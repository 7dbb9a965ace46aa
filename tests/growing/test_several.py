"""Models of several sizes: all become the largest of them in each dimension."""

import torch

from fusionlab.growing import described, grown_to_one_size, told
from tests.symmetry.models import randomize

from .families import among_silent_layers, bert, timm_vit, vit


def test_the_largest_of_each_dimension_is_taken() -> None:
    models = {
        "wide": randomize(vit(hidden_size=20), 0),
        "deep": randomize(vit(num_hidden_layers=3), 1),
        "both": randomize(vit(hidden_size=16, intermediate_size=31), 2),
    }
    growths = grown_to_one_size(models)
    assert list(growths) == list(models)
    shapes = [{n: t.shape for n, t in growth.model.state_dict().items()} for growth in growths.values()]
    expected = vit(hidden_size=20, num_hidden_layers=3, intermediate_size=31).state_dict()
    assert shapes == [{name: tensor.shape for name, tensor in expected.items()}] * 3
    assert all(growth.exact < 1e-9 for growth in growths.values())


def test_the_largest_model_stays_as_it_is() -> None:
    models = {"small": randomize(timm_vit(), 0), "large": randomize(timm_vit(embed_dim=30, depth=3), 1)}
    growths = grown_to_one_size(models)
    assert list(growths) == ["small"]
    words = told(growths)
    assert words.startswith(
        "The end models are of different sizes, so that small (residual 24 to 30, attention.qk 8 to 10"
    )
    (numbers, more_numbers), (few, many) = growths["small"].parameters, growths["small"].operations
    assert f"layers 2 to 3; {more_numbers / numbers:.1f} times the parameters, {many / few:.1f} times the op" in words
    assert "of a pass) was grown" in words
    assert described(growths["small"]) in words


def test_models_of_one_size_or_of_two_classes_are_left_alone() -> None:
    one = randomize(vit(), 0)
    assert grown_to_one_size({"a": one, "b": randomize(vit(), 1)}) == {}
    assert grown_to_one_size({"a": one, "b": bert(hidden_size=24)}) == {}
    # Labels and vocabularies are no sizes of hidden spaces.
    assert grown_to_one_size({"a": one, "b": vit(num_labels=5)}) == {}
    assert grown_to_one_size({"a": bert(), "b": bert(vocab_size=23)}) == {}


def test_layers_are_placed_by_data_where_one_model_is_the_largest() -> None:
    small = randomize(vit(num_hidden_layers=1), 0)
    large = among_silent_layers(small, randomize(vit(num_hidden_layers=3), 0), (1,), (0,))
    data = [{"pixel_values": torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))}]
    (stack,) = grown_to_one_size({"small": small, "large": large}, data)["small"].placements
    assert stack.positions == (1,)
    (stack,) = grown_to_one_size({"small": small, "large": large})["small"].placements
    assert stack.positions == (2,)
