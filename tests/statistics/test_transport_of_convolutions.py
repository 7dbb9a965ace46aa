"""Statistics of convolutions behind norms, moved by an alignment that folds those, are those gathered on the twin."""

import pytest
import timm
import torch

from fusionlab.statistics.regauged import Change
from fusionlab.statistics.transport import move
from fusionlab.symmetry import Alignment, SymmetryError, blueprint
from tests.parts import one_in
from tests.statistics.passes import activations_of, grams_of


@pytest.mark.parametrize("name", one_in(2, ["test_efficientnet_ln", "test_efficientnet_gn"]))
def test_moved_grams_are_the_twins(name: str) -> None:
    """A convolution of three by three places reads nine of each channel, whose gain is the channel's."""
    draw = torch.Generator().manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=2).eval()
    description = blueprint(model).in_gauge(("folded",))
    assert description.norms
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    alignment = Alignment.random(description, draw)
    twin, batches = alignment.apply(model), [{"x": torch.randn(2, 3, 48, 48, generator=draw, dtype=torch.float64)}]
    for found in (grams_of, activations_of):
        source, expected = found(model, batches), found(twin, batches)
        moved = move(source, alignment, twin.state_dict(), model.state_dict())
        held = (moved.matrices, expected.matrices) if found is grams_of else (moved.inputs, expected.inputs)
        assert held[0].keys() == held[1].keys()
        for weight, matrix in held[1].items():
            torch.testing.assert_close(
                held[0][weight], matrix, rtol=0, atol=1e-5 * float(matrix.abs().max()), msg=weight
            )


def test_features_without_equal_parts_are_refused() -> None:
    change = Change(torch.ones(2).double(), torch.zeros(2).double())
    with pytest.raises(SymmetryError, match="5 features have no 2 equal parts; gather on the twin instead"):
        change.of_gram(torch.eye(6).double())
