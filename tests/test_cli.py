"""The command itself: help, version, commands that do not exist, and what it does with errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusionlab import __version__, checkpoints, cli, printing
from fusionlab.commands import matching_options
from fusionlab.commands.option_groups import options_of
from tests.commands.small import vit
from tests.docs_tables import help_text

MATCHING = ["--match", "--untie", *(f"--{name}" for name in options_of(matching_options.options(), ("seed",)))]
MERGING = ["--method", "--weights", "--hyperparameters", "--base", "--statistics"]
INPUTS = ["--probes", "--samples", "--length"]
DEVICES = ["--accelerator", "--devices", "--precision"]
MEASURING = ["--data", "--out_of_domain", "--points", *DEVICES]
GRID = [
    "--end_models", "--groups", "--methods", "--matchings", "--seeds", "--out_of_domain", "--ensemble", "--multitask",
    "--samples", "--test_samples", "--points", "--title", "--output", "--dry-run", "--protocol", "--heads", "--base",
    "--on", "--cpus",
]  # fmt: skip
OUTPUT = ["--output", "--overwrite"]
OPTIONS = {
    "advise": ["--names", "--json", *MEASURING],
    "match": [
        "--accelerator",
        "--example",
        "--json",
        "--architecture",
        "--names",
        "--anchor",
        "--base",
        "--dtype",
        "--push",
        "--resume",
        *OUTPUT,
        *MATCHING,
        *INPUTS,
    ],
    "merge": [
        "--example",
        "--json",
        "--architecture",
        "--names",
        "--dtype",
        "--max-shard-size",
        "--as",
        "--rank",
        "--push",
        "--resume",
        *OUTPUT,
        *MERGING,
        *INPUTS,
        *DEVICES,
    ],
    "fuse": [
        "--resume",
        "--examples",
        "--plane",
        "--push",
        "--ckpts",
        "--json",
        "--names",
        "--architecture",
        "--example",
        "--anchor",
        "--dtype",
        "--polish",
        "--search",
        "--correct",
        "--heads",
        "--ensemble",
        *OUTPUT,
        *MATCHING,
        *MERGING,
        *INPUTS,
        *MEASURING,
    ],
    "barrier": [
        "--example",
        "--json",
        "--architecture",
        "--names",
        *OUTPUT,
        *MATCHING,
        "--correct",
        *INPUTS,
        *MEASURING,
    ],
    "gather": [
        "--example",
        "--json",
        "--architecture",
        *OUTPUT,
        "--data",
        "--kinds",
        "--samples",
        "--labels",
        "--rows",
        *DEVICES,
    ],
    "compare": [*GRID, *DEVICES],
    "reproduce": ["--protocol", "--output", "--dry-run", "--on", "--cpus", *DEVICES],
    "extract": ["--base", "--rank", "--json", *OUTPUT],
    "check": ["--names", "--architecture", "--base", "--values", "--json", *OUTPUT],
    "completion": [],
    "inspect": ["--example", "--architecture", "--json", "--picture", "--overwrite"],
    "demo": [*OUTPUT, "--epochs", "--sizes"],
}


def explained_in(text: str) -> dict[str, str]:
    """The options that a page of help has, each with its words."""
    first = re.search(r"\n\n\w[^\n]*:(?=\n  -)", text)
    assert first is not None
    entries = re.split(r"\n  (?=[-\w])", text[first.start() :])
    explained = {}
    for entry in entries:
        signature, _, words = re.sub(r"\n\n\w[^\n]*:$|\n +", "  ", entry.strip()).partition("  ")
        option = re.match(r"--?[\w.-]+", signature)
        if option and not option.group().endswith(".help"):
            told = re.sub(r"\((?:type|required|default)[^)]*\)", "", words)
            explained[option.group()] = re.sub(r"\s+", " ", told).strip()
    return explained


@pytest.mark.parametrize("name", OPTIONS)
def test_help_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 0; exactly these options (and the common ones), each with words of its own."""
    assert cli.main([name, "--help", "all"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: fusionlab {name}")
    explained = explained_in(text)
    common = {"-h", "--config", "--print_config"}
    # Nothing is random in these; a grid lists its seeds.
    seeded = set() if name in ("check", "completion", "inspect", "extract", "compare", "reproduce") else {"--seed"}
    assert set(explained) == common | seeded | set(OPTIONS[name])
    for option, words in explained.items():
        assert len(words) > 12, option


@pytest.mark.parametrize("name", OPTIONS)
def test_help_is_that_of_the_parser(name: str) -> None:
    """``make tables`` writes the pages; line breaks are those of the version that wrote them."""
    page = explained_in(cli.help_page(name).read_text(encoding="utf-8"))
    assert page == explained_in(help_text(name))


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command is listed with a line of its own."""
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    for name, words in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(words)}$", text, re.MULTILINE)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The package's own."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fusionlab {__version__}\n"


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2 and one line that lists the commands."""
    assert cli.main(["fuze", "--ckpts", "a"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "'fuze'" in captured.err
    assert captured.err.endswith(", did you mean fuse?\n")
    assert all(name in captured.err for name in cli.COMMANDS)


@pytest.mark.parametrize("arguments", [["inspect", "{}", "--quiet"], ["-q", "inspect", "{}"]])
def test_quiet(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but errors is printed."""
    checkpoints.save(vit(), tmp_path / "a")
    assert cli.main([word.format(tmp_path / "a") for word in arguments]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert cli.main([word.format(tmp_path / "b") for word in arguments]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err


def test_verbose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress is told where no terminal shows it; results are those of the plain command."""
    for seed in (0, 1):
        checkpoints.save(vit(seed), tmp_path / f"{seed}")
    ends, output = [str(tmp_path / "0"), str(tmp_path / "1")], str(tmp_path / "out")
    assert cli.main(["merge", *ends, "--output", output]) == 0
    plain = capsys.readouterr()
    assert cli.main(["merge", *ends, "--output", output, "--overwrite", "--verbose"]) == 0
    more = capsys.readouterr()
    assert plain.err == ""
    assert more.err.startswith("merging ")
    assert plain.out.splitlines()[1:] == more.out.splitlines()[1:]
    assert not printing.is_verbose()


def test_help_is_quick() -> None:
    """The list of commands needs neither torch nor transformers, nor does the help of one."""
    calls = "".join(f"main([{name!r}, '--help']); " for name in OPTIONS)
    code = f"import sys; from fusionlab.cli import main; main([]); {calls}sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(("before", "frozen"), [("", True), ("import torch; ", False)])
def test_what_is_imported_is_not_looked_through_for_garbage(before: str, frozen: bool) -> None:
    """In a process of its own; in another program's everything is left as it is."""
    line = f"import gc, sys; {before}from fusionlab.cli import main; main(['completion', 'bash']); "
    line += "print(gc.get_freeze_count() > 1000, gc.isenabled(), file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert ended.stderr.split() == [str(frozen), "True"]
