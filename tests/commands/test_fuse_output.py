"""The files of a fusion of Lightning's checkpoints, and the names that models go by."""

from pathlib import Path

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.data.tokenizers import byte_tokenizer
from tests.commands.conftest import Command
from tests.commands.fused import rows
from tests.commands.small import bert

FILE = "version_0/checkpoints/epoch=0-step=94.ckpt"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two Lightning files of BERTs, called as Lightning calls them, and the tokenizer that they were trained with."""
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    for seed, name in enumerate(("imdb", "yelp")):
        model = bert(seed)
        archive = {
            "state_dict": {f"model.{key}": tensor for key, tensor in model.state_dict().items()},
            "fusionlab": checkpoints.describe(model),
            "datamodule_hyper_parameters": {"tokenizer": str(tmp_path / "tokenizer")},
        }
        path = tmp_path / "logs" / name / FILE
        path.parent.mkdir(parents=True)
        torch.save(archive, path)
    return tmp_path / "logs"


def test_lightning_files_give_a_folder_too(logs: Path, tmp_path: Path, command: Command) -> None:
    """It holds the same model, its tokenizer and card; models go by the folders that tell them apart."""
    outcome = command("fuse", "--ckpts", logs / "imdb" / FILE, logs / "yelp" / FILE, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "Merging imdb and yelp" in outcome.out
    one, two = (checkpoints.load(tmp_path / "out" / name).state_dict() for name in ("merged.ckpt", "merged"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert (tmp_path / "out" / "merged" / "tokenizer.json").is_file()
    assert "imdb" in (tmp_path / "out" / "merged" / "README.md").read_text()


def test_names_that_are_given(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """They stand in the table and in the results; another number of them is one sentence."""
    line = ["fuse", "--ckpts", ckpts / "a", ckpts / "b", "--data", "Digits", "--points", "0", "--match", "none"]
    outcome = command(*line, "--names", "cats", "dogs", "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "Merging cats and dogs" in outcome.out
    assert {name for row in rows(tmp_path / "out") for name in row["models"]} == {"cats", "dogs"}
    outcome = command(*line, "--names", "cats", "--output", tmp_path / "other")
    assert outcome.code == 2
    assert "names has 1 names for 2 models; expected one for each" in outcome.err


def test_names_of_twins(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Twins lie under the names that were given, Lightning's as files."""
    output = tmp_path / "twins"
    paths = [ckpts / "lightning_a.ckpt", "--anchor", ckpts / "lightning_b.ckpt", "--gauge", "balanced"]
    outcome = command("match", *paths, "--names", "one", "two", "--output", output)
    assert outcome.code == 0, outcome.err
    assert {path.name for path in output.iterdir()} >= {"one.ckpt", "two.ckpt"}
