"""Models shared out over two gloo processes: half of the numbers in each, and the same function and gradients."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from fusionlab.forward import forward, main_output
from fusionlab.sharding import empty_part, fill, kept_whole, let_go, load_module, load_optimizer, shared_out, whole
from tests.statistics.passes import batched, examples_for, model_of
from tests.together import free_port, run_together

# Layers in a list, under tied embeddings, and in a sequence.
MODELS = ("gpt2-lm-tied", "timm-vit")


def held(model: nn.Module) -> int:
    """Bytes of a model's parameters that this process holds."""
    return sum(
        (p.to_local() if isinstance(p, DTensor) else p).untyped_storage().nbytes() for p in set(model.parameters())
    )


def share_as_one_of(rank: int, count: int, port: int, models: dict[str, nn.Module], place: Path) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), RANK=str(rank))
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (count,))
    told: dict[str, dict[str, float]] = {}
    for name, model in models.items():
        inputs = batched(examples_for(model, 2), 2)[0]
        before = copy.deepcopy(model.state_dict())
        model.requires_grad_(True)
        part = shared_out(model.eval(), mesh)
        # Each process has an example of its own; the loss of one process is the sum.
        output = main_output(forward(part, {key: value[rank : rank + 1] for key, value in inputs.items()}))
        output.square().sum().backward()
        expected = main_output(forward(model, inputs))
        expected.square().sum().backward()
        gradients = {key: whole(p.grad) for key, p in part.named_parameters() if p.grad is not None}
        optimizer = torch.optim.AdamW(part.parameters(), lr=0.1)
        optimizer.step()
        moved, moments = kept_whole(part.state_dict()), kept_whole(optimizer.state_dict())
        again = shared_out(model, mesh)
        other = torch.optim.AdamW(again.parameters(), lr=0.1)
        if rank == 0:
            torch.save([moved, moments], place / f"{name}.pt")
        distributed.barrier()
        moved, moments = torch.load(place / f"{name}.pt")
        load_module(again, moved)
        load_optimizer(other, moments)
        told[name] = {
            "share": held(part) / held(model),
            "output": float((output - expected[rank : rank + 1]).abs().max()),
            "gradient": _apart({k: p.grad for k, p in model.named_parameters() if p.grad is not None}, gradients),
            "changed": max(float((before[k] - v).abs().max()) for k, v in model.state_dict().items()),
            "restored": _apart(part.state_dict(), again.state_dict()),
            "moments": _apart(*(dict(enumerate(_moments(one))) for one in (optimizer, other))),
        }
        let_go(part)
        told[name]["let go"] = held(part)
    parted = empty_part(torch.zeros(5, 3), mesh)
    fill(parted, torch.arange(15.0).view(5, 3))
    told["tensor"] = {"rows": len(parted.to_local()), "sum": float(whole(parted).sum())}  # type: ignore[attr-defined]
    torch.save(told, place / f"{rank}.pt")
    distributed.destroy_process_group()


def _apart(first: Mapping[Any, Tensor], second: Mapping[Any, Tensor]) -> float:
    assert first.keys() == second.keys()
    return max(float((whole(first[key]) - whole(second[key])).abs().max()) for key in first)


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


def test_each_process_holds_half_and_all_compute_the_same(tmp_path: Path) -> None:
    models = {name: model_of(name) for name in MODELS}
    assert run_together(share_as_one_of, free_port(), models, tmp_path) == [0, 0]
    rows = []
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        rows.append(found.pop("tensor"))
        assert list(found) == list(MODELS)
        for name, one in found.items():
            assert one["share"] < 0.62, name  # what has an odd number of rows is filled up
            for differing in ("output", "gradient", "restored", "moments"):
                assert one[differing] == pytest.approx(0, abs=1e-9), (name, differing)
            assert one["changed"] == one["let go"] == 0, name
    assert rows == [{"rows": 3, "sum": 105.0}, {"rows": 2, "sum": 105.0}]


def run_several_types(rank: int, count: int, port: int, model: nn.Module, place: Path) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), RANK=str(rank))
    distributed.init_process_group("gloo")
    inputs = batched(examples_for(model, 2), 2)[0]
    part = shared_out(model.eval(), init_device_mesh("cpu", (count,)))
    torch.save(main_output(forward(part, inputs)).detach(), place / f"{rank}.pt")
    distributed.destroy_process_group()


def test_several_types_are_shared_out_in_the_widest(tmp_path: Path) -> None:
    model = model_of("gpt2-lm-tied").to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.float() if "ln_" in name else parameter.data
    types = [parameter.dtype for parameter in model.parameters()]
    expected = main_output(forward(copy.deepcopy(model).float(), batched(examples_for(model, 2), 2)[0]))
    assert run_together(run_several_types, free_port(), model, tmp_path) == [0, 0]
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected.detach(), rtol=1e-5, atol=1e-6)
    assert [parameter.dtype for parameter in model.parameters()] == types
