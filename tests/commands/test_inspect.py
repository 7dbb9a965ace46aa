"""`fusionlab inspect` tells the blueprint's own numbers."""

import contextlib
import io
import json
import math
from pathlib import Path

import pytest
import transformers

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


def test_experts_that_are_copies_are_told(tmp_path: Path, command: Command) -> None:
    """Of a mixture upcycled from a dense model, one sentence for every layer; of another one nothing."""
    config = transformers.MixtralConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=40, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    model.save_pretrained(tmp_path / "own")
    for layer in model.model.layers:
        for parameter in layer.mlp.experts.parameters():
            parameter.data = parameter.data[:1].expand_as(parameter).contiguous()
    model.save_pretrained(tmp_path / "upcycled")
    found = {name: command("inspect", str(tmp_path / name)) for name in ("own", "upcycled")}
    assert "Copies" not in found["own"].out
    for layer in range(2):
        assert f"the 4 experts of layers.{layer}.experts differ from their mean by 0.0% of" in found["upcycled"].out
