"""`fusionlab gather` writes statistics of a checkpoint over a training split."""

import json
from pathlib import Path

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.data import Digits
from fusionlab.statistics import Activations, Grams
from fusionlab.statistics.files import load
from tests.commands.conftest import Command

FAST = ["--data", "Digits", "--data.batch_size", "100", "--samples", "150", "--accelerator", "cpu"]


def test_statistics_of_the_training_split(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The file holds the Gram matrices of all 1,300 training images, tied to the checkpoint; the table says so."""
    arguments = ["--data", "Digits", "--data.batch_size", "100", "--accelerator", "cpu"]
    outcome = command("gather", ckpts / "a", *arguments, "--output", tmp_path / "stats.safetensors")
    assert outcome.code == 0, outcome.err
    model = checkpoints.load(ckpts / "a")
    (found,) = load(tmp_path / "stats.safetensors", model.state_dict()).values()
    assert isinstance(found, Grams)
    pixels = Digits().train_set.pixel_values
    assert found.examples == len(pixels) == 1300
    name = "vit.embeddings.patch_embeddings.projection.weight"
    squares = pixels.reshape(1300, 2, 4, 2, 4).transpose(2, 3).reshape(-1, 16).double()
    torch.testing.assert_close(found.matrices[name][:-1, :-1].double(), squares.T @ squares, rtol=1e-5, atol=1e-2)
    assert f"gram {found.examples} {max(found.rows.values())}" in outcome.out.replace("│", "").replace("  ", " ")
    assert "stats.safetensors" in outcome.out
    assert "KiB" in outcome.out
    assert "0.0 MiB" not in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["stats.safetensors"]


def test_several_kinds_of_some_samples(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """All kinds in one pass over a drawn part of the data, with the options of each."""
    place = tmp_path / "stats.safetensors"
    kinds = ["--kinds", "gram,fisher,activations", "--rows", "20", "--labels", "empirical"]
    outcome = command("gather", ckpts / "a", *FAST, *kinds, "--output", place, "--json")
    assert outcome.code == 0, outcome.err
    told = {one["kind"]: one for one in json.loads(outcome.out)["statistics"]}
    assert told["activations"]["rows"] == 20
    assert told["fisher"]["rows"] is None
    assert all(one["examples"] == 150 and one["bytes"] > 0 for one in told.values())
    found = load(place)
    assert {kind: statistics.examples for kind, statistics in found.items()} == dict.fromkeys(found, 150)
    assert set(found) == {"gram", "fisher", "activations"}
    assert found["fisher"].settings["labels"] == "empirical"
    activations = found["activations"]
    assert isinstance(activations, Activations)
    assert {tensor.shape[1] for tensor in activations.inputs.values()} == {20}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kinds", "grams"], "there are no 'grams' statistics; expected some of"),
        (["--samples", "0"], "samples is 0; expected at least 1"),
        (["--rows", "0", "--kinds", "activations"], "samples is 0; expected at least 1"),
        (["--labels", "all", "--kinds", "fisher"], "labels is 'all'; expected one of"),
        (["--precision", "bf16-true"], "rounds the model"),
        (["--accelerator", "none"], "none"),
    ],
)
def test_bad_input(ckpts: Path, tmp_path: Path, command: Command, arguments: list[str], sentence: str) -> None:
    """One sentence, exit code 2, nothing written."""
    outcome = command("gather", ckpts / "a", *FAST, *arguments, "--output", tmp_path / "stats.safetensors")
    assert outcome.code == 2
    assert sentence in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_kept(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """It is refused before the pass, and replaced only with --overwrite."""
    place = tmp_path / "stats.safetensors"
    place.write_text("old")
    outcome = command("gather", ckpts / "a", *FAST, "--output", place)
    assert (outcome.code, place.read_text()) == (2, "old")
    assert "exists already" in outcome.err
    assert command("gather", ckpts / "a", *FAST, "--output", place, "--overwrite").code == 0
    assert set(load(place)) == {"gram"}


def test_data_that_does_not_fit(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Images for a text model: one sentence that says so."""
    outcome = command("gather", ckpts / "bert_a", *FAST, "--output", tmp_path / "stats.safetensors")
    assert outcome.code == 2
    assert "does not fit the model" in outcome.err
    assert not list(tmp_path.iterdir())
