"""`fusionlab inspect` tells the blueprint's own numbers."""

import contextlib
import io
import json
import math
import re
from pathlib import Path

import pytest
import transformers

import fusionlab
from fusionlab import checkpoints
from fusionlab.cli import main
from fusionlab.commands.inspect import of_all_layers
from fusionlab.evaluation.symmetry_rows import name_of_kind
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
    # Two layers of two heads and 32 feed-forward units, and a residual stream that is 16 wide; BERT's pooler has units
    # of its own, with signs behind a hyperbolic tangent.
    orders = [math.factorial(2) ** 2, math.factorial(32) ** 2, math.factorial(16)]
    orders += [math.factorial(16) * 2**16] if name == "bert_a" else []
    assert told["log10_order"] == pytest.approx(sum(map(math.log10, orders)))
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
    # The numbers of layers are stars, in the table as in what is not covered.
    for name in (*map(name_of_kind, (*found.untouched(), *found.spaces)), *map(of_all_layers, found.notes)):
        assert name in outcome.out
    assert "Left out: the outputs do not depend on vit.layers.*.attention.k_proj.bias." in outcome.out
    assert "GL every invertible matrix;" in outcome.out
    assert "O1 rotations and reflections that keep the all-ones vector;" in outcome.out
    assert "inferred from a small model of the same structure, and tried on the model itself." in outcome.out
    assert "Groups tried by random elements" in outcome.out


def test_spaces_that_share_a_row_are_told_from_the_next(ckpts: Path, command: Command) -> None:
    """Maps of queries and of values were tried alike: their names stand in one cell, between lines."""
    tried = command("inspect", ckpts / "a").out.partition("Groups tried")[2]
    assert re.search(r"├─+┼─+┤ │ layers\.\*\.qk │[^├]* layers\.\*\.vo │[^├]*├", tried)


def test_a_note_on_one_layer_names_it() -> None:
    """Only what holds in several layers has a star; other notes are as they are."""
    silent = "the outputs do not depend on a.0.bias, a.1.bias, a.1.gain"
    assert of_all_layers(silent) == "the outputs do not depend on a.*.bias, a.1.gain"
    assert of_all_layers("no rule for the operation a.0.b, a.1.b") == "no rule for the operation a.0.b, a.1.b"


def test_what_is_written_down_is_told(ckpts: Path, command: Command) -> None:
    """Nothing was tried on it, and it says where to read."""
    outcome = command("inspect", ckpts / "timm_a")
    assert (outcome.code, outcome.err) == (0, "")
    assert "How it was found: written in symmetry/architectures/timm_vit.py." in outcome.out
    assert "Groups tried" not in outcome.out


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


def test_what_was_tried_is_told_in_words_and_in_json(tmp_path: Path, command: Command) -> None:
    """Of a model that nobody described: the gains that are folded, and how equal outputs stayed."""
    sizes = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "intermediate_size": 40, "num_local_experts": 4}
    transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **more)).save_pretrained(tmp_path / "model")
    outcome = command("inspect", tmp_path / "model")
    words = re.sub("[│ ]+", " ", outcome.out)
    assert "How it was found: inferred from a small model of the same structure, and tried on the model itself" in words
    assert re.search(
        r"rotations and reflections, after folding the gains of 7 norms: outputs equal to \de-1[4-7]", words
    )
    assert re.search(r"R\* a factor of either sign; S permutations; Z2 a sign for each coordinate\.", words)
    told = json.loads(command("inspect", tmp_path / "model", "--json").out)
    (residual,) = (space for space in told["spaces"] if space["name"] == "residual")
    assert (residual["group"], residual["group_folded"], residual["norms_folded"]) == ("S(32)", "O(32)", 7)
    assert [(one["group"], one["outcome"], one["folded"]) for one in residual["tried"]] == [
        ("O", "taken", True),
        ("S", "taken", False),
    ]
    assert all(one["change"] < 1e-9 for one in residual["tried"])
    assert told["origin"].startswith("inferred from a small model")
    assert told["groups"]["GL"] == "every invertible matrix"


def test_picture(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """A PNG that is there whole or not at all, never in place of another without being told."""
    picture = tmp_path / "symmetry.png"
    outcome = command("inspect", ckpts / "a", "--picture", picture)
    assert (outcome.code, outcome.err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Picture: {picture}" in outcome.out
    before = picture.read_bytes()
    refused = command("inspect", ckpts / "b", "--picture", picture)
    assert refused.code == 2
    assert "symmetry.png" in refused.err
    assert picture.read_bytes() == before
    # Before any work: not even the checkpoint has been looked for.
    assert "symmetry.png" in command("inspect", ckpts / "nothing", "--picture", picture).err
    assert command("inspect", ckpts / "nothing", "--picture", tmp_path / "other.png").code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["symmetry.png"]
    assert command("inspect", ckpts / "bert_a", "--picture", picture, "--overwrite").code == 0
    assert picture.read_bytes() != before
