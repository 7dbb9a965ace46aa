"""The benchmark of assignments that follow the loss: trials keep functions, relaxations have their gradients."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DebertaV2Config, DebertaV2ForMaskedLM, GPT2Config, GPT2LMHeadModel

from fusionlab.learning.distillation import output_of
from fusionlab.learning.points import at_point
from fusionlab.symmetry import Alignment, blueprint
from tests.benchmarks.examples import text
from tests.matching.refining import gpt2, inputs
from tests.parts import long
from tests.symmetry.models import generator, randomize


def halfway(benchmark: Any, turned: int = 0) -> tuple[Any, nn.Module]:
    """A tied GPT-2 and itself with two channels of the stream exchanged, halfway; and the model."""
    trials, model = benchmark("assignment_trials"), randomize(gpt2(), seed=turned).double().eval()
    description = blueprint(model)
    swap = Alignment(description, {trials.STREAM: trials.transposition(24, 3, 11)})
    (batch,) = inputs(model, 1)
    return trials.Halfway(
        [swap.apply(model), model], [Alignment.identity(description)] * 2, batch, torch.float64
    ), model


def outputs(model: nn.Module, pair: Any) -> Tensor:
    """What the source's twin returns."""
    return at_point(model, pair.source, output_of, pair.inputs).detach()


def test_swap_that_was_planted_is_found(benchmark: Any) -> None:
    """All exchanges are scored, and the one that gives the model back is taken; nothing is left to gain."""
    pair, model = halfway(benchmark)
    assert pair.swap(8, 8)[1] == 1
    for name, tensor in model.named_parameters():
        assert torch.equal(pair.source[name], tensor)
    assert pair.swap(8, 8) == (0, 0)


def test_gains_of_swaps_are_those_of_brute_force(benchmark: Any) -> None:
    """Every exchange that lowers a random loss of permutations, the best first."""
    trials, draw = benchmark("assignment_trials"), generator(0)
    table = {order: float(torch.randn((), generator=draw)) for order in itertools.permutations(range(5))}
    found = trials.swap_gains(lambda order: table[tuple(order.tolist())], 5)
    still, expected = table[tuple(range(5))], []
    for order, loss in table.items():
        moved = tuple(place for place, unit in enumerate(order) if place != unit)
        if len(moved) == 2 and loss < still:
            expected.append((loss - still, moved))
    assert found == sorted(expected)
    assert found


def test_implicit_gradient_is_that_of_the_limit(benchmark: Any) -> None:
    """Sinkhorn's scaling differentiated implicitly agrees with all its passes, and with differences."""
    trials = benchmark("assignment_trials")
    logits = torch.randn(2, 5, 5, dtype=torch.float64, generator=generator(0)).requires_grad_()
    weights = torch.randn(2, 5, 5, dtype=torch.float64, generator=generator(1))
    assert torch.autograd.gradcheck(trials.ImplicitSinkhorn.apply, (logits,))
    grads: list[Tensor] = []
    for scaling in (trials.ImplicitSinkhorn.apply, lambda x: trials.sinkhorn(x, 200)):
        grads += torch.autograd.grad((scaling(logits) * weights).sum(), logits)
    assert torch.allclose(*grads, atol=1e-10)


@pytest.mark.parametrize("kind", ["straight", "sinkhorn", "implicit"])
def test_twin_keeps_its_function(kind: str, benchmark: Any) -> None:
    """After a descent with relaxed permutations the source is its end model in another basis."""
    trials = benchmark("assignment_trials")
    pair, model = halfway(benchmark)
    before = outputs(model, pair)
    how = {
        "straight": lambda share: trials.straight_through,
        "sinkhorn": trials.annealed(trials.sinkhorn, 1.0, 0.1),
        "implicit": trials.annealed(trials.ImplicitSinkhorn.apply, 1.0, 0.1),
    }[kind]
    moved = pair.descend(4, 4, trials.RATE, how, (trials.STREAM, "ffn", "heads"), 1.0)
    assert moved > 0
    assert torch.allclose(outputs(model, pair), before, rtol=0, atol=1e-9 * float(before.abs().max()))


@long
def test_rows_run_and_go_on(tmp_path: Path, benchmark: Any) -> None:
    """With tiny models a row has a finite barrier; the next call measures what is left and nothing again."""
    command, shown = benchmark("assignments"), benchmark("assignments_rows")
    tried = ["swaps", "muon starts", "sinkhorn", "random", "default", "few joined"]
    small = ["--small", "--results", str(tmp_path / "results"), "--models", str(tmp_path / "models")]
    small += ["--rows", *tried]
    small += ["--shakespeare", str(text(tmp_path / "plays.parquet"))]
    for seed in (11, 12):
        torch.manual_seed(seed)
        sizes = {kind: one.small for kind, one in shown.KINDS.items()}
        gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=259, **sizes["gpt2"]))
        deberta = DebertaV2ForMaskedLM(DebertaV2Config(vocab_size=259, **sizes["deberta"]))
        gpt2.save_pretrained(tmp_path / "models" / f"gpt2_{seed}")
        deberta.save_pretrained(tmp_path / "models" / f"deberta_{seed}")
    assert command.main([*small, "--count", "1"]) == 0
    cells = tmp_path / "results" / "assignments.json"
    before = json.loads(cells.read_text())
    assert len(before) == 1
    assert command.main(small) == 0
    found = json.loads(cells.read_text())
    assert {name: found[name] for name in before} == before
    assert found.keys() == {*(f"gpt2 11-12 {row}" for row in tried), *(f"deberta 11-12 {row}" for row in tried[-2:])}
    assert all(math.isfinite(one["barrier"]) for one in found.values())
    page = (tmp_path / "results" / "assignments.md").read_text()
    assert all(f"| {row.words}" in page for row in shown.ROWS.values())
    assert all(f"## {kind.title}" in page for kind in shown.KINDS.values())
