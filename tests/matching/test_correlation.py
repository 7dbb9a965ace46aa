"""Permutations by correlation: a planted one comes back, and each is the best assignment of the correlations."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from fusionlab.batch_norm import remeasured
from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.matching.activations import activation_axes, activation_tensor
from fusionlab.matching.correlation import CorrelationOptions, match_correlations
from fusionlab.matching.recipe import recipe
from fusionlab.statistics import Activations
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.axes import Along
from tests.commands.small import vit
from tests.matching.sampling import sample
from tests.merging.convolutions import images, permuted, resnet


def activations(model: nn.Module) -> Activations:
    """Of every row: there are fewer than are kept."""
    found = gather(model, [{"pixel_values": images(24, size=16)[0]["pixel_values"]}], ("activations",))["activations"]
    assert isinstance(found, Activations)
    return found


@pytest.mark.parametrize("layer_type", ["basic", "bottleneck"])
def test_a_planted_permutation_of_channels_is_found(layer_type: str) -> None:
    """Along the streams of all stages and inside of blocks; with running means and variances, to the last bit."""
    # With running statistics of its own no channel is silent; silent ones cannot be told from each other.
    model = remeasured(resnet(0, layer_type), images(24, size=16))
    description = blueprint(model)
    planted = permuted(description)
    hidden = planted.apply(model)
    batch = images(5, size=16)[0]
    with torch.no_grad():
        torch.testing.assert_close(logits(hidden, batch), logits(model, batch))
    found = match_correlations(activations(hidden), activations(model), description, CorrelationOptions())
    assert found.elements.keys() == planted.elements.keys()
    state, moved = model.state_dict(), found.apply(hidden.state_dict())
    differ = [name for name in state if not torch.equal(hidden.state_dict()[name], state[name])]
    assert sum(name.endswith("running_var") for name in differ) >= 4
    assert all(torch.equal(moved[name], state[name]) for name in state)


def test_inside_a_block_it_is_the_best_assignment_of_correlations() -> None:
    """Of what the first convolution writes and, beside it, of what the second reads: every pixel counts."""
    source, anchor = resnet(0), resnet(1)
    description = blueprint(anchor)
    options = CorrelationOptions(spaces=("ffn",))
    found = match_correlations(activations(source), activations(anchor), description, options)
    assert {description.spaces[name].role for name in found.elements} == {"ffn"}
    block = "resnet.encoder.stages.0.layers.1.layer"
    (name,) = {axis.space for axis in description.parameters[f"{block}.0.normalization.weight"]}

    def rows(model: nn.Module) -> list[np.ndarray]:
        seen = []
        handles = [
            model.get_submodule(f"{block}.0.convolution").register_forward_hook(lambda m, args, out: seen.append(out)),
            model.get_submodule(f"{block}.1.convolution").register_forward_hook(lambda m, args, out: seen.append(
                torch.nn.functional.unfold(args[0], 3, padding=1).unflatten(1, (6, 9)).flatten(2))),
        ]  # fmt: skip
        with torch.no_grad():
            logits(model, images(24, size=16)[0])
        for handle in handles:
            handle.remove()
        return [values.transpose(0, 1).flatten(1).numpy() for values in seen]

    total = sum(np.corrcoef(b, a)[:6, 6:] for a, b in zip(rows(source), rows(anchor), strict=True))
    best = linear_sum_assignment(total, maximize=True)[1]
    identity = torch.arange(6, dtype=torch.float64).unsqueeze(1)
    order = description.spaces[name].group.act(found.elements[name], identity)
    assert order.flatten().tolist() == best.tolist()


@pytest.mark.parametrize("folded", [False, True], ids=["as-is", "folded"])
def test_a_space_alone_is_the_best_assignment_of_all_its_correlations(folded: bool) -> None:
    """A stream, which after folding may be turned too, and hidden units: over all maps that read or write them."""
    source, anchor = vit(0).double(), vit(1).double()
    description = blueprint(anchor)
    if folded:
        assert description.after_folding is not None
        description = description.after_folding
    batch = {"pixel_values": torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)}
    seen = [sample(model, batch) for model in (source, anchor)]
    found = match_correlations(*seen, description, CorrelationOptions())
    axes = activation_axes(seen[1], description)
    names = {axis.space for axis in axes.values() if isinstance(axis, Along)}
    assert {description.spaces[name].role for name in names} >= {"residual", "ffn"}
    for name in names:
        size, total = description.spaces[name].group.size, 0
        for key, axis in axes.items():
            if isinstance(axis, Along) and axis.space == name:
                rows = [activation_tensor(one, key, size).numpy() for one in seen]
                total = total + np.corrcoef(rows[1], rows[0])[:size, size:]
        best = linear_sum_assignment(total, maximize=True)[1]
        identity = torch.arange(size, dtype=torch.float64).unsqueeze(1)
        order = description.spaces[name].group.act(found.elements[name], identity)
        assert order.flatten().tolist() == best.tolist()


def test_units_count_alike_whatever_their_scale() -> None:
    """Units of a transformer too, and ones that never vary; its rotations are permutations here."""
    model = vit(0).double()
    description = blueprint(model)
    draw = torch.Generator().manual_seed(1)
    batch: dict[str, Tensor] = {"pixel_values": torch.randn(40, 1, 8, 8, generator=draw, dtype=torch.float64)}
    space = next(space for space in description.spaces.values() if space.role == "ffn")
    order = torch.randperm(32, generator=draw)
    hidden = Alignment(description, {space.name: order}).apply(model)
    with torch.no_grad():
        hidden.vit.layers[0].mlp.fc1.weight[:8].mul_(1e-3)
        hidden.vit.layers[0].mlp.fc1.bias[:8].mul_(1e-3)
    options = CorrelationOptions(spaces=("ffn",), layers="0")
    found = match_correlations(sample(hidden, batch), sample(model, batch), description, options)
    undone = found.compose(Alignment(description, {space.name: order})).elements[space.name]
    assert undone.tolist() == list(range(32))


def test_it_is_a_preset_that_runs_the_models() -> None:
    assert recipe("correlation").needs_inputs
    assert recipe("correlation", spaces="ffn").options == CorrelationOptions(spaces=("ffn",))
    with pytest.raises(InputError, match="has no option 'sweeps'"):
        recipe("correlation", sweeps=3)
