"""The files of a fusion of Lightning's checkpoints, and the names that models go by."""

import html
import json
import re
from pathlib import Path

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.commands.fuse_output import way_back
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.evaluation.results import Results, Row
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
    assert f"Written to {tmp_path / 'out' / 'merged'}: plain averaging unmatched Report: " in outcome.out
    assert {name for row in rows(tmp_path / "out") for name in row["models"]} == {"cats", "dogs"}
    outcome = command(*line, "--names", "cats", "--output", tmp_path / "other")
    assert outcome.code == 2
    assert "names has 1 names for 2 models; expected one for each" in outcome.err


def test_the_first_method_is_kept_and_named(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """On the terminal and in the report, whichever is best; with and without data."""
    line = ["fuse", "--ckpts", ckpts / "a", ckpts / "b", "--match", "paper", "--method", "slerp,simple"]
    for name, data in (("bare", []), ("measured", ["--data", "Digits", "--points", "0"])):
        outcome = command(*line, *data, "--output", tmp_path / name)
        assert outcome.code == 0, outcome.err
        assert f"Written to {tmp_path / name / 'merged'}: slerp matched by paper Report: " in outcome.out
    assert "slerp goes from" in outcome.out or "slerp has" in outcome.out
    report = (tmp_path / "measured" / "report.html").read_text()
    assert re.search(
        r"The merge that is kept, in the folder\s*<code>merged</code>:\s*<code>slerp</code> matched", report
    )


@pytest.mark.parametrize(("share", "is_told"), [(0.9894, True), (0.9896, False), (1.0, False)])
def test_a_way_back_is_told_of_what_shows_as_less_than_99_percent(share: float, is_told: bool) -> None:
    """Of the worse of two tasks; what is shown as 99.0 % has lost nothing that is spoken of."""
    rows = [Row((name,), "end model", "-", data, "in", "accuracy", 0.9) for name, data in (("a", "one"), ("b", "two"))]
    rows += [
        Row(("a", "b"), "simple", "none", data, "in", "accuracy", 0.9 * kept)
        for data, kept in (("one", share), ("two", 1.0))
    ]
    results = Results("t", ("a", "b"), rows, kept=("simple", "none"))
    told = way_back(["--ckpts", "a", "b"], results, may_polish=True)
    assert len(told) == is_told
    assert way_back([], results, may_polish=False) == []
    for words in told:
        assert "fusionlab fuse --ckpts a b --polish" in words
        assert "docs/" not in words, "an installation has no docs"


def test_names_of_twins(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Twins lie under the names that were given, Lightning's as files."""
    output = tmp_path / "twins"
    paths = [ckpts / "lightning_a.ckpt", "--anchor", ckpts / "lightning_b.ckpt", "--gauge", "balanced"]
    outcome = command("match", *paths, "--names", "one", "two", "--output", output)
    assert outcome.code == 0, outcome.err
    assert {path.name for path in output.iterdir()} >= {"one.ckpt", "two.ckpt"}


def test_a_soup_tells_which_models_it_kept(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """On the terminal, for machines, in the report and in the model card; of the merge that is kept in the card."""
    options = ("--ckpts", ckpts / "a", ckpts / "b", "--names", "x", "y", "--match", "none", "--method", "soup,simple")
    given = (*options, "--data", "Digits", "--points", 0, "--output")
    found = command("fuse", *given, tmp_path / "json", "--json")
    assert found.code == 0, found.err
    (note,) = [note for note in json.loads(found.out)["notes"] if "Kept" in note]
    told = re.fullmatch(r"`soup` unmatched: (Kept [xy and]+ of 2 models.*)\.", note)
    assert told is not None, note
    assert f"| found by the method | {told[1]} |" in (tmp_path / "json" / "merged" / "README.md").read_text()
    assert note in html.unescape((tmp_path / "json" / "report.html").read_text()).replace("<code>soup</code>", "`soup`")
    assert note in command("fuse", *given, tmp_path / "out").out
