"""CLIP from the command line: fine-tunes are merged and measured by the names of folders, twins of other seeds too."""

import json
from pathlib import Path

import datasets
import pytest
import torch

import fusionlab
from fusionlab import checkpoints
from fusionlab.data import own_data
from tests.commands.conftest import Command
from tests.data.colours import clip, images

PARTS = {"warm": ("dark_red", "white"), "cold": ("green", "light_blue")}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets; what is named lies in the working folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        clip(tmp_path / name, seed)
    for part, colours in PARTS.items():
        images(tmp_path / part, colours, count=10)


def test_each_data_set_is_read_with_its_own_names(command: Command) -> None:
    """Matched by learning, merged with data and polished; every row is measured, and the twins compute the same."""
    result = command(
        "fuse", "--ckpts", "a", "b", "--data", "warm", "cold", "--match", "learned", "--steps", "2", "--polish", "2",
        "--method", "simple,fisher,regmean,adamerging", "--base", "a", "--points", "3", "--output", "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "'a photo of a {}.'" in result.err
    rows = json.loads(Path("out/results.json").read_text())
    measured = {row["data_set"] for row in rows if row["metric"] == "accuracy"}
    assert measured == {"warm", "cold"}
    assert (Path("out") / "merged" / "tokenizer.json").is_file()
    merged = checkpoints.load(Path("out/merged"))
    assert type(merged).__name__ == "CLIPModel"


def test_scores_are_those_of_the_class_itself(command: Command) -> None:
    """By its own forward on the same images and texts, for end models and merge."""
    result = command(
        "fuse", "--ckpts", "a", "b", "--data", "warm", "--match", "none", "--points", "0", "--output", "out"
    )
    assert result.code == 0, result.err
    data = own_data("warm", "a")
    data.setup("test")
    (batch,) = data.test_dataloader()
    expected = []
    for folder in ("a", "b", "out/merged"):
        model = fusionlab.load(folder)
        with torch.no_grad():
            found = model(batch["input_ids"][0], batch["pixel_values"], batch["attention_mask"][0]).logits_per_image
        expected.append(float((found.argmax(1) == batch["labels"]).float().mean()))
    rows = json.loads(Path("out/results.json").read_text())
    accuracy = {(*row["models"], row["method"]): row["value"] for row in rows if row["metric"] == "accuracy"}
    ways = (("a", "end model"), ("b", "end model"), ("a", "b", "simple"))
    assert [accuracy[way] for way in ways] == pytest.approx(expected)
