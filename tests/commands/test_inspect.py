"""`fusionlab inspect` tells the blueprint's own numbers."""

import contextlib
import io
import json
import math
from pathlib import Path

import pytest

import fusionlab
from fusionlab import checkpoints
from fusionlab.cli import main
from tests.commands.conftest import Command


@pytest.mark.parametrize("name", ["a", "bert_a", "timm_a", "lightning_a.ckpt"])
def test_json(ckpts: Path, name: str) -> None:
    """Spaces, dimension, order and coverage are those of the blueprint, and nothing else is printed."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert main(["inspect", str(ckpts / name), "--json"]) == 0
    told = json.loads(stream.getvalue())
    model = checkpoints.load(ckpts / name)
    found = fusionlab.blueprint(model)
    assert told["architecture"] == found.architecture
    assert [(s["name"], s["role"], s["layer"], s["group"], s["dimension"]) for s in told["spaces"]] == [
        (s.name, s.role, s.layer, str(s.group), s.dimension) for s in found.spaces.values()
    ]
    assert [s["copies"] for s in told["spaces"]] == [math.prod(s.copies) for s in found.spaces.values()]
    assert told["dimension"] == found.dimension
    # Two layers of two heads and 32 feed-forward units, and a residual stream that is 16 wide.
    permutations = [math.factorial(2) ** 2, math.factorial(32) ** 2, math.factorial(16)]
    assert told["log10_order"] == pytest.approx(sum(map(math.log10, permutations)))
    assert told["numbers"] == sum(parameter.numel() for parameter in model.parameters())
    assert told["untouched"] == list(found.untouched())
    sizes = dict(model.named_parameters())
    assert told["untouched_numbers"] == sum(sizes[name].numel() for name in found.untouched())
    assert told["left_out"] == list(found.notes)


def test_table(ckpts: Path, command: Command) -> None:
    """Every role with its dimension, the sums, what is not covered and what was left out."""
    outcome = command("inspect", ckpts / "a")
    assert (outcome.code, outcome.err) == (0, "")
    found = fusionlab.blueprint(checkpoints.load(ckpts / "a"))
    for role in found.roles():
        assert role in outcome.out
    assert f"{found.dimension:,} continuous dimensions" in outcome.out
    for name in (*found.untouched(), *found.notes):
        assert name in outcome.out
