"""REPAIR of convolutions by its formula: channels of the merge get the weighted mean of its end models' moments."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fusionlab.batch_norm import batch_norms
from fusionlab.forward import logits
from fusionlab.merging import merge_states
from fusionlab.merging.correction import correct
from fusionlab.models import with_state
from tests.merging.convolutions import images, mixed, plain, resnet

Build = Callable[[int], nn.Module]
SHARES = (0.25, 0.75)


def merge_of(twins: list[nn.Module]) -> nn.Module:
    return with_state(twins[0], merge_states([twin.state_dict() for twin in twins], "simple", SHARES))


def written(model: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """By name, what every convolution, linear map and BatchNorm writes before its activation: rows of channels."""
    found: dict[str, list[Tensor]] = {}

    def hook(name: str, module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        if name in norms:
            shape = (1, -1, *[1] * (args[0].ndim - 2))
            mean, var = (buffer.reshape(shape) for buffer in (module.running_mean, module.running_var))
            output = (args[0] - mean) / (var + module.eps).sqrt()
            if module.weight is not None:
                output = output * module.weight.reshape(shape) + module.bias.reshape(shape)
        found.setdefault(name, []).append(output.transpose(1, -1).reshape(-1, output.shape[1]))

    norms = batch_norms(model)
    maps = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    handles = [module.register_forward_hook(partial(hook, name)) for name, module in (maps | norms).items()]
    with torch.no_grad():
        for batch in batches:
            logits(model, batch)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(rows) for name, rows in found.items()}


# What a BatchNorm does not normalise, beside every BatchNorm.
CASES: dict[str, tuple[Build, set[str]]] = {
    "resnet": (resnet, {"classifier.1"}),
    "bottleneck": (partial(resnet, layer_type="bottleneck"), {"classifier.1"}),
    "mixed": (mixed, {"10"}),
    "plain": (plain, {"0", "3", "7"}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_channel_gets_the_weighted_moments_of_the_end_models(name: str) -> None:
    """``mean = sum_i w_i mean_i`` and ``std = sum_i w_i std_i`` on the batches, to the last digits of float64."""
    build, alone = CASES[name]
    twins, batches = [build(seed) for seed in (0, 1)], images(12, 7, size=16)
    merged = merge_of(twins)
    corrected = correct(merged, twins, batches, SHARES)
    places = batch_norms(merged).keys() | alone
    ends, found, before = (
        [written(twin, batches) for twin in twins],
        *(written(m, batches) for m in (corrected, merged)),
    )
    for place in places:
        for moment in (lambda rows: rows.mean(0), lambda rows: rows.std(0, correction=0)):
            wanted = SHARES[0] * moment(ends[0][place]) + SHARES[1] * moment(ends[1][place])
            assert (moment(found[place]) - wanted).abs().max() < 1e-6, place
        # The mean of what a first layer writes is right as it is; its spread is not.
        assert (moment(before[place]) - wanted).abs().max() > 1e-2, place


@pytest.mark.parametrize("name", ["resnet", "bottleneck", "mixed"])
def test_norms_hold_the_correction_and_statistics_of_the_merge(name: str) -> None:
    """What a BatchNorm normalises is left as it is, running statistics are those of what the merge feeds it, and gains
    keep their signs."""
    build, alone = CASES[name]
    twins, batches = [build(seed) for seed in (0, 1)], images(12, 7, size=16)
    merged = merge_of(twins)
    corrected = correct(merged, twins, batches, SHARES)
    before, after = merged.state_dict(), corrected.state_dict()
    kept = [n for n, m in merged.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and n not in alone]
    assert len(kept) >= 2
    assert all(torch.equal(before[f"{layer}.weight"], after[f"{layer}.weight"]) for layer in kept)
    rows: dict[str, list[Tensor]] = {}
    for place, norm in batch_norms(corrected).items():
        norm.register_forward_pre_hook(
            lambda module, args, place=place: rows.setdefault(place, []).append(args[0].transpose(1, -1).flatten(0, -2))
        )
    with torch.no_grad():
        for batch in batches:
            logits(corrected, batch)
    for place, norm in batch_norms(corrected).items():
        if norm.weight is not None:
            torch.testing.assert_close(norm.running_mean, torch.cat(rows[place]).mean(0))
            torch.testing.assert_close(norm.running_var, torch.cat(rows[place]).var(0, correction=0))
            assert torch.equal(norm.weight.sign(), before[f"{place}.weight"].sign())


@pytest.mark.parametrize("name", CASES)
def test_a_merge_of_equal_models_is_left_as_it_is(name: str) -> None:
    """Whatever the running statistics are: they need not be those of the batches."""
    model, batches = CASES[name][0](0), images(12, 7, size=16)
    corrected = correct(model, [model, copy.deepcopy(model)], batches)
    with torch.no_grad():
        torch.testing.assert_close(logits(corrected, batches[0]), logits(model, batches[0]))


def test_a_channel_that_does_not_vary_is_only_shifted() -> None:
    """Its spread says nothing, and a running variance of zero would blow up what other data hold."""
    twins, batches = [resnet(0), resnet(1)], images(12, 7, size=16)
    with torch.no_grad():
        for twin in twins:
            twin.resnet.embedder.embedder.convolution.weight[2] = 0
    merged = merge_of(twins)
    norm = "resnet.embedder.embedder.normalization"
    before, after = merged.get_submodule(norm), correct(merged, twins, batches, SHARES).get_submodule(norm)
    assert after.weight[2] == before.weight[2]
    assert after.running_var[2] == before.running_var[2]
    assert after.weight[3] != before.weight[3]
