"""A model that was gathered from is as it was: parameters, buffers, modes, hooks, devices and types."""

import copy

import pytest
import torch

from fusionlab.forward import forward
from fusionlab.statistics.gather import gather
from tests.merging.convolutions import images, resnet
from tests.statistics.passes import batched, examples_for, model_of, trainer

KINDS = ("gram", "activations", "fisher")


def test_model_is_left_as_it_was() -> None:
    """Parameters, buffers, mode, gradients' flags and hooks are those from before, also in double precision."""
    model = copy.deepcopy(model_of("bert-sequence")).float().train()
    model.get_submodule("bert.encoder").eval()
    next(model.parameters()).requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    modes = {name: module.training for name, module in model.named_modules()}
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    gather(model, batched(examples_for(model), 2), KINDS, trainer=lambda: trainer(precision="64-true"), samples=4)
    after = model.state_dict()
    assert all(torch.equal(after[name], t) and after[name].dtype == t.dtype for name, t in before.items())
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert {name: p.requires_grad for name, p in model.named_parameters()} == flags
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(("dtype", "precision"), [(torch.bfloat16, "32-true"), (torch.float32, "64-true")])
def test_buffers_are_left_as_they_were(dtype: torch.dtype, precision: str) -> None:
    """Those that a module has in parameters' types, which are measured in another one."""
    model = resnet().to(dtype)
    before = {name: (id(buffer), buffer.clone()) for name, buffer in model.named_buffers()}
    assert any(buffer.is_floating_point() for _, buffer in before.values())
    batches = [{"pixel_values": batch["pixel_values"].float()} for batch in images(3, 4, size=16)]
    found = gather(model, batches, ("gram",), trainer=lambda: trainer(precision=precision))
    found["gram"].check(model.state_dict(), "the model")
    for name, buffer in model.named_buffers():
        assert id(buffer) == before[name][0]
        assert buffer.dtype == before[name][1].dtype
        assert torch.equal(buffer, before[name][1])
    forward(model, {"pixel_values": batches[0]["pixel_values"].to(dtype)})
