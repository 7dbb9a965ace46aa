"""Running statistics of BatchNorm: measured again they are those of what the model itself feeds each layer."""

import copy
import itertools
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from fusionlab.batch_norm import (
    MEASURED_BATCHES,
    batch_norms,
    by_batch,
    measured_on,
    remeasure,
    remeasured,
    running_statistics,
)
from fusionlab.errors import InputError
from fusionlab.forward import logits
from tests.commands.small import vit
from tests.merging.convolutions import images, mixed, plain, resnet

NETS = {"resnet": resnet, "bottleneck": partial(resnet, layer_type="bottleneck"), "mixed": mixed}


def fed(model: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, list[Tensor]]:
    """What each BatchNorm reads of each batch, when every one normalises by the batch: rows of channels."""
    model, found = copy.deepcopy(model), dict[str, list[Tensor]]()

    def hook(name: str, module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        found.setdefault(name, []).append(args[0].transpose(1, -1).reshape(-1, args[0].shape[1]))
        # One that reads rows of mean 0 and variance 1 and has such running statistics changes nothing but the gain.
        module.running_mean.zero_()
        module.running_var.fill_(1 - module.eps)
        return (functional.batch_norm(args[0], None, None, training=True, eps=module.eps),)

    for name, norm in batch_norms(model).items():
        norm.register_forward_pre_hook(partial(hook, name))
    with torch.no_grad():
        for batch in batches:
            logits(model, batch)
    return found


@pytest.mark.parametrize("name", NETS)
def test_remeasured_are_the_means_over_batches(name: str) -> None:
    """Of each batch's mean and unbiased variance, every layer fed by the normalised ones before it; nothing else of the
    model changes, and the model that was given changes in nothing."""
    model, batches = NETS[name](0), images(9, 6, 1, size=16)
    before, seen = copy.deepcopy(model.state_dict()), fed(model, batches[:2])
    found = remeasured(model, batches)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert not found.training
    assert not any(norm.training for norm in batch_norms(found).values())
    assert [n.momentum for n in batch_norms(found).values()] == [n.momentum for n in batch_norms(model).values()]
    assert seen.keys() == batch_norms(found).keys()
    for key, norm in batch_norms(found).items():
        for buffer, moment in ((norm.running_mean, Tensor.mean), (norm.running_var, Tensor.var)):
            torch.testing.assert_close(buffer, torch.stack([moment(rows, 0) for rows in seen[key]]).mean(0))
    changed = {key for key, tensor in found.state_dict().items() if not torch.equal(tensor, before[key])}
    measured = set(running_statistics(before))
    assert len(measured) == 2 * len(seen)
    assert measured <= changed
    assert {key.rpartition(".")[2] for key in changed - measured} == {"num_batches_tracked"}


def test_measured_on_data_that_lie_class_by_class() -> None:
    """A loader in order gives examples from everywhere in every batch; a shuffling one and a list give their first."""
    data = [{"x": torch.tensor(place)} for place in range(1000)]
    found = [batch["x"].tolist() for batch in measured_on(DataLoader(data, batch_size=5))]
    assert len(found) == MEASURED_BATCHES
    assert sorted(itertools.chain.from_iterable(found)) == list(range(0, 1000, 25))
    assert all(batch[0] < 200 and batch[-1] >= 800 and len(batch) == 5 for batch in found)
    few = [batch["x"].tolist() for batch in measured_on(DataLoader(data[:30], batch_size=5))]
    assert few == [list(range(first, 30, 6)) for first in range(6)]
    listed = list(DataLoader(data, batch_size=5))
    assert measured_on(listed) == listed[:MEASURED_BATCHES]
    mixed = DataLoader(data, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(0))
    again = DataLoader(data, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(0))
    firsts = [batch["x"].tolist() for batch, _ in zip(again, range(MEASURED_BATCHES), strict=False)]
    assert [batch["x"].tolist() for batch in measured_on(mixed)] == firsts


@pytest.mark.parametrize("name", NETS)
def test_by_batch_running_statistics_do_not_count(name: str) -> None:
    """A copy that normalises by the batch returns the same whatever they are, and what training mode returns."""
    model, (batch,) = NETS[name](0), images(9, size=16)
    other = copy.deepcopy(model)
    for norm in batch_norms(other).values():
        norm.reset_running_stats()
    with torch.no_grad():
        found, same, plainly = (logits(by_batch(one), batch) for one in (model, other, other))
        # There is no dropout in them.
        training = logits(copy.deepcopy(model).train(), batch)
        assert (found - logits(model, batch)).abs().max() > 1e-2
    torch.testing.assert_close(found, same)
    torch.testing.assert_close(plainly, training)
    assert not by_batch(model).state_dict().keys() & set(running_statistics(model.state_dict()))


def test_models_without_are_left_alone() -> None:
    for model in (vit(0), plain(0)):
        assert remeasured(model, []) is model
        assert by_batch(model) is model
        assert running_statistics(model.state_dict()) == []


def test_nothing_to_measure_on_is_refused_and_momenta_come_back() -> None:
    model = resnet(0)
    for batches in ([], images(1, 1)):
        with pytest.raises(InputError, match="no batch of two examples or more"):
            remeasure(model, batches)
        assert all(norm.momentum == 0.1 and not norm.training for norm in batch_norms(model).values())
