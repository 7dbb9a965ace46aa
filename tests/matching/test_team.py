"""Processes that match together: what they tell each other, and the alignment that one process finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.errors import InputError
from fusionlab.matching import align, universe
from fusionlab.matching.align import align_states
from fusionlab.matching.options import MEAN, MatchOptions, Selection
from fusionlab.matching.presets import preset
from fusionlab.matching.recipe import recipe
from fusionlab.matching.team import ALONE, Processes, Team
from fusionlab.matching.workplace import Workplace
from fusionlab.symmetry import Alignment, blueprint
from tests.parts import EVERY
from tests.symmetry.models import random_model, randomize
from tests.together import run_together


class Counting(Processes):
    """Processes that note how many numbers each reduction adds up."""

    def __init__(self) -> None:
        super().__init__()
        self.reductions: list[int] = []

    def total(self, *parts: Tensor) -> tuple[Tensor, ...]:
        self.reductions.append(sum(part.numel() for part in parts))
        return super().total(*parts)


def as_one_of(rank: int, count: int, folder: Path, work: Callable[[Counting], Any]) -> None:
    """What work gives in one of several gloo processes, in a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'meeting'}", rank=rank, world_size=count)
    torch.save(work(Counting()), folder / f"{rank}.pt")
    dist.destroy_process_group()


def together(folder: Path, work: Callable[[Counting], Any], count: int = 2) -> list[Any]:
    """What work gives in each of several gloo processes."""
    assert run_together(as_one_of, folder, work, count=count) == [0] * count
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def told(team: Counting) -> dict[str, Any]:
    """What a process of two hears of sums, of what one makes, of all tensors and of an error."""
    own = torch.tensor([team.rank + 1.0, 10.0])
    summed = team.total(own, torch.full((2, 2), team.rank, dtype=torch.float64))
    made = team.agreed(lambda: {"a": (torch.arange(3) + team.rank, [torch.tensor([True, False]), 2.5, None])}, 1)
    named = team.joined({f"{team.rank}": own, "both": own})
    raised = ""
    try:
        team.agreed(lambda: fail(team.rank))
    except InputError as error:
        raised = str(error)
    return {"summed": list(summed), "made": made, "named": named, "raised": raised}


def fail(rank: int) -> None:
    raise InputError(f"process {rank} failed")


def test_processes_tell_each_other(tmp_path: Path) -> None:
    """Sums over processes in the types that went in; nested values, truth values too; an error is everybody's."""
    for found in together(tmp_path, told):
        assert found["summed"][0].dtype == torch.float32
        assert found["summed"][0].tolist() == [3, 20]
        assert found["summed"][1].tolist() == [[1, 1], [1, 1]]
        order, (truth, number, nothing) = found["made"]["a"]
        assert (order.tolist(), truth.tolist(), number, nothing) == ([1, 2, 3], [True, False], 2.5, None)
        assert {name: x.tolist() for name, x in found["named"].items()} == {"0": [1, 10], "1": [2, 10], "both": [2, 10]}
        assert found["raised"] == "process 0 failed"


@dataclass(frozen=True)
class Case:
    """Models, and how they are matched."""

    models: list[nn.Module]
    options: Selection

    def found(self, team: Team) -> list[Alignment]:
        states = [model.state_dict() for model in self.models]
        return align_states(states, blueprint(self.models[0]), self.options, place=Workplace(team=team))


def llama(seed: int) -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "vocab_size": 40}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return randomize(LlamaForCausalLM(LlamaConfig(**sizes, **heads)), seed)


def gpt2(seed: int) -> nn.Module:
    return randomize(GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=40, n_positions=12)), seed)


def t5(seed: int) -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 40}
    return randomize(T5ForConditionalGeneration(T5Config(**sizes)), seed)


def near(make: Callable[[int], nn.Module]) -> list[nn.Module]:
    """A model, and what is nearly its random twin."""
    model = make(0)
    twin = Alignment.random(blueprint(model), torch.Generator().manual_seed(1)).apply(model)
    other = make(2).state_dict()
    twin.load_state_dict({name: x.lerp(other[name], 0.1) for name, x in twin.state_dict().items()})
    return [twin, model]


UNITS = {name: recipe(name).options for name in ("git-rebasin", "ot-fusion")}
# Few temperatures: each is shared as every other.
WEIGHTS = replace(preset("weights"), temperatures=4)
CLOSE: Any = {"rtol": 1e-6, "atol": 1e-7}
CASES: dict[str, Callable[[], Case]] = {
    "llama": lambda: Case([llama(0), llama(1)], WEIGHTS),
    "llama, near": lambda: Case(near(llama), WEIGHTS),
    "gpt2, tied": lambda: Case([gpt2(0), gpt2(1)], WEIGHTS),
    "gpt2, scales together": lambda: Case([gpt2(0), gpt2(1)], replace(WEIGHTS, rescale="joint")),
    "t5, heads of all layers in one order": lambda: Case([t5(0), t5(1)], WEIGHTS),
    "bert, a stream of permutations": lambda: Case([random_model("bert-sequence", s) for s in (0, 1)], WEIGHTS),
    "vit, relative lengths": lambda: Case(
        [random_model("vit-classifier", s) for s in (0, 1)], replace(WEIGHTS, relative=0.5, start="known")
    ),
    "vit, the paper's": lambda: Case([random_model("vit-classifier", s) for s in (0, 1)], preset("paper")),
    "three vits, their mean": lambda: Case(
        [random_model("vit-classifier", s) for s in (0, 1, 2)], replace(WEIGHTS, towards=MEAN)
    ),
    "bert, units of all spaces": lambda: Case([random_model("bert-sequence", s) for s in (0, 1)], UNITS["git-rebasin"]),
    "llama, units of all spaces": lambda: Case([llama(0), llama(1)], UNITS["git-rebasin"]),
    "vit, units by a ground metric": lambda: Case(
        [random_model("vit-classifier", s) for s in (0, 1)], UNITS["ot-fusion"]
    ),
}


# In every run those of other rules: a stream of rotations, one of permutations, heads that share an order, a mean.
SHARED = CASES if EVERY else {name: CASES[name] for name in (
    "llama", "bert, a stream of permutations", "t5, heads of all layers in one order", "vit, the paper's",
    "three vits, their mean", "llama, units of all spaces",
)}  # fmt: skip


def matched(team: Counting) -> dict[str, Any]:
    """Every case, by a process that shares it with another."""
    found = {}
    for name, case in SHARED.items():
        team.reductions.clear()
        alignments = case().found(team)
        found[name] = [dict(alignment.elements) for alignment in alignments], list(team.reductions)
    return found


def test_two_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same elements in both, those of one process to rounding, whatever is shared.

    Each reduction that is as large as a stream's correlation is one look at one stream, in the annealing or in a sweep;
    where no stream is matched nothing is added up at all.
    """
    monkeypatch.setattr(universe, "ROUNDS", 2)  # random models take many, all alike
    # First, so that the two inherit the blueprints.
    alone = {name: case().found(ALONE) for name, case in SHARED.items()}
    both = together(tmp_path, matched)
    for name, wanted in alone.items():
        case, described = CASES[name](), wanted[0].blueprint
        for found, _ in (one[name] for one in both):
            for elements, alignment in zip(found, wanted, strict=True):
                assert elements.keys() == alignment.elements.keys(), name
                for space, element in elements.items():
                    torch.testing.assert_close(element, alignment.elements[space], **CLOSE)
        for first, second in zip(both[0][name][0], both[1][name][0], strict=True):
            assert all(torch.equal(first[space], second[space]) for space in first), "told, and not found twice"
        chosen = case.options.select(described)
        streams = [space for space in chosen if space.layer is None and space.role == "residual"]
        squares = [space.group.size**2 for space in streams]
        large = [size for size in both[0][name][1] if squares and size >= min(squares)]
        if "units of all" in name:
            assert large, "the stream's correlation is added up"
        if "paper" in name:
            assert both[0][name][1] == []
        elif name.startswith("llama") and isinstance(case.options, MatchOptions):
            looks = case.options.temperatures if "near" not in name else 0
            assert len(large) > looks
            assert len(large) <= case.options.temperatures + case.options.sweeps


def balanced(team: Team) -> int:
    """How many of two models a process brings into the balanced gauge."""
    with patch.object(align, "balance", wraps=align.balance) as balance:
        CASES["llama, near"]().found(team)
    return balance.call_count


def test_each_brings_its_models_into_the_gauge(tmp_path: Path) -> None:
    """Two models, two processes: each balances one, and is told the other's elements."""
    assert balanced(ALONE) == 2  # first, so that the two inherit the blueprint
    assert together(tmp_path, balanced) == [1, 1]
