"""Data on the command line by a file alone: what is written out before parsing, and commands that measure on it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest

from fusionlab import checkpoints
from fusionlab.commands.own_data import written_out
from fusionlab.data import own_data
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from tests.commands.conftest import Command
from tests.commands.fused import rows
from tests.commands.small import bert

MODULE = "fusionlab.data.own.OwnData"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets; what is named lies in the working folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        lines = [f"{'fine' if row % 2 else 'poor'} {row},{row % 4}" for row in range(12)]
        Path(name).write_text("\n".join(["review,stars", *lines]) + "\n")


def one(path: str, **options: Any) -> str:
    return json.dumps({"class_path": MODULE, "init_args": {"path": path, **options}})


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--data", "a.csv"], ["--data", one("a.csv")]),
        (["--data=a.csv", "--points", "3"], ["--points", "3", "--data", one("a.csv")]),
        (
            ["--data.text_column", "review", "--data", "a.csv", "--data.limit=3"],
            ["--data", one("a.csv", text_column="review", limit=3)],
        ),
        (["--out-of-domain", "b.csv"], ["--out_of_domain", one("b.csv")]),
        (["--probes", "some/hub"], ["--probes", one("some/hub")]),
    ],
)
def test_a_file_is_written_out(argv: Sequence[str], expected: Sequence[str]) -> None:
    assert written_out(argv) == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["--data", "Digits", "--data.batch_size", "4"],
        ["--data", "my.module.Data"],
        ["--data", '[{"class_path": "Digits"}]'],
        ["--probes", "synthetic"],
        ["--data", "null", "--seed", "1"],
        ["--data.help", "OwnData"],
    ],
)
def test_the_rest_stays_as_it_is(argv: Sequence[str]) -> None:
    assert written_out(argv) == list(argv)


def test_several_files() -> None:
    """One for each model; where checkpoints may follow, what is called as data are."""
    both = [json.loads(one(name)) for name in ("a.csv", "b.csv")]
    option, value = written_out(["--data", "a.csv", "b.csv"])
    assert (option, json.loads(value)) == ("--data", both)
    kept = written_out(["--data", "a.csv", "b.csv", "model/a", "model/b"], several=False)
    assert kept[:2] == ["model/a", "model/b"]
    assert json.loads(kept[3]) == both


def test_a_config_may_name_a_file() -> None:
    Path("some.yaml").write_text("data: a.csv\npoints: 3\n")
    (option, text) = written_out(["--config", "some.yaml"])
    assert json.loads(text) == {"data": json.loads(one("a.csv")), "points": 3}
    assert option == "--config"


def test_nearly_a_data_module() -> None:
    with pytest.raises(InputError, match="did you mean Digits"):
        written_out(["--data", "Digitz"])


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two BERTs with four classes and a tokenizer beside each."""
    places = [tmp_path_factory.mktemp("berts") / name for name in ("bert_a", "bert_b")]
    for seed, place in enumerate(places):
        checkpoints.save(bert(seed, vocab_size=len(byte_tokenizer())), place)
        byte_tokenizer().save_pretrained(place)
    return places


def test_fuse_measures_on_files(command: Command, berts: Sequence[Path], tmp_path: Path) -> None:
    """One file for each model and one out of domain; guesses are told on standard error and in the report."""
    output = tmp_path / "out"
    line = ["--data", "a.csv", "b.csv", "--data.test_size", "4", "--out_of_domain", "b.csv", "--points", "0"]
    outcome = command("fuse", "--ckpts", *berts, "--match", "none", *line, "--output", output)
    assert outcome.code == 0, outcome.err
    assert "a.csv: text from `review`; label from `stars`" in outcome.err
    assert "so 4 of the rows are held out" in outcome.err
    assert "--out_of_domain.label_column" in outcome.err
    assert "text from" not in outcome.out
    assert {(row["data_set"], row["domain"]) for row in rows(output)} >= {("a", "in"), ("b", "in"), ("b 2", "out")}
    assert "text from `review`" in (output / "report.html").read_text()


@pytest.mark.parametrize("name", ["csv", "drawings"])
def test_a_folder_may_be_called_as_anything(command: Command, berts: Sequence[Path], tmp_path: Path, name: str) -> None:
    """As a reader of the datasets library is, or a kind of synthetic inputs; nothing beside it is read."""
    Path(name).mkdir()
    Path("beside").mkdir()
    for split in ("train", "test"):
        for folder in (name, "beside"):
            shutil.copy("a.csv", Path(folder) / f"{split}.csv")
    line = ["--match", "none", "--points", "0", "--data", name, "--output", tmp_path / "out"]
    outcome = command("fuse", "--ckpts", *berts, *line)
    assert outcome.code == 0, outcome.err
    module = own_data(name, berts[0])
    module.setup("test")
    assert len(module.test_dataloader().dataset) == 12


def test_a_search_on_rows_that_are_held_out(command: Command, berts: Sequence[Path], tmp_path: Path) -> None:
    """Without them it is refused, with the option that holds some out."""
    pytest.importorskip("optuna")
    line = ["fuse", "--ckpts", *berts, "--match", "none", "--method", "task_arithmetic", "--base", berts[0]]
    line += ["--data", "a.csv", "--points", "0", "--search", "2", "--output", tmp_path / "out"]
    outcome = command(*line)
    assert (outcome.code, outcome.err.count("\n")) == (2, 2)
    assert "expected data (--data) with a validation split, or with rows of training" in outcome.err
    assert "(--data.val_size 0.2)" in outcome.err
    outcome = command(*line, "--data.val_size", "3")
    assert outcome.code == 0, outcome.err
    assert any("searched" in row["method"] for row in rows(tmp_path / "out"))


def test_a_column_that_is_not_there(command: Command, berts: Sequence[Path], tmp_path: Path) -> None:
    """One sentence that names the file, the columns there are, and the option."""
    line = ["fuse", "--ckpts", *berts, "--data", "a.csv", "--output", tmp_path / "out"]
    outcome = command(*line, "--data.text_column", "text")
    assert outcome.code == 2
    assert "a.csv has no column 'text'; it has review, stars" in outcome.err
    outcome = command(*line, "--data.label_values", "good,bad")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--data.label_values has 2 values, and the model's 4 classes are" in outcome.err
    assert not (tmp_path / "out").exists()


def test_other_commands_take_files(command: Command, berts: Sequence[Path], tmp_path: Path) -> None:
    """Those that look at inputs only need no labels."""
    Path("plain.csv").write_text("text\n" + "\n".join(f"night {row}" for row in range(12)) + "\n")
    twin = tmp_path / "twin"
    outcome = command("match", berts[0], "--anchor", berts[1], "--match", "activations", "--probes", "plain.csv",
                      "--output", twin)  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "text from `text`" in outcome.err
    assert command("gather", "--data", "plain.csv", berts[0], "--output", tmp_path / "a.safetensors").code == 0
    outcome = command("barrier", *berts, "--data", "a.csv", "--points", "3", "--match", "none")
    assert outcome.code == 0, outcome.err
    assert "accuracy" in outcome.out


def test_what_reads_data_is_imported_where_data_are_named(ckpts: Path, tmp_path: Path) -> None:
    """A fusion without data takes neither datasets nor pandas, which are most of a second."""
    program = (
        "import sys; from fusionlab.cli import main; code = main(sys.argv[1:])\n"
        "print('imported', sorted({'datasets', 'pandas'} & sys.modules.keys())); sys.exit(code)"
    )
    line = ["fuse", "--ckpts", str(ckpts / "a"), str(ckpts / "b"), "--match", "none", "--output", str(tmp_path / "o")]
    done = subprocess.run([sys.executable, "-c", program, *line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "imported []")
