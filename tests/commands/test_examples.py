"""Help that opens with examples, common options first and those of research last."""

import re

import pytest

from fusionlab import cli
from fusionlab.commands.examples import COMMON, EXAMPLES, arranged

PAGES = sorted(cli.COMMANDS)


@pytest.mark.parametrize("command", PAGES)
def test_every_command_opens_with_two_examples(command: str) -> None:
    """Of itself, with options that it has."""
    page = cli.help_page(command).read_text(encoding="utf-8")
    examples = page.split("Examples:\n")[1].split("\n\n")[0].splitlines()
    assert len(examples) == 2
    assert page.index("Examples:") < 200
    for example in examples:
        words = example.split()
        assert words[:2] == ["fusionlab", command]
        for option in (word for word in words if word.startswith("--")):
            assert f"\n  {option}" in page or f" {option} " in page, option


@pytest.mark.parametrize("command", ["fuse", "match", "barrier"])
def test_research_comes_last(command: str) -> None:
    page = cli.help_page(command).read_text(encoding="utf-8")
    assert page.index(f"{COMMON}:\n") < page.index("Matching:\n") < page.index("\noptions:\n")
    last = page.rindex(f"{cli.RESEARCH}:\n")
    assert page.index("Devices:\n" if "Devices:\n" in page else "\noptions:\n") < last
    assert "--temperatures" in page[last:]
    assert "--match " not in page[last:]


def test_research_is_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """Help names the number of its options, and how to see them; of a command that has none there is no word of it."""
    assert cli.main(["fuse", "--help"]) == 0
    short = capsys.readouterr().out
    assert cli.main(["fuse", "--help", "all"]) == 0
    whole = capsys.readouterr().out
    assert whole == cli.help_page("fuse").read_text(encoding="utf-8")
    first, rest = whole.split(f"\n{cli.RESEARCH}:\n")
    count = len([line for line in rest.splitlines() if line.startswith("  --")])
    assert count > 10
    assert short == f"{first}\n{cli.RESEARCH}: {count} options more, by fusionlab fuse --help all\n"
    assert cli.shown_help("merge", everything=False) == cli.shown_help("merge", everything=True)


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_the_short_page_of_training(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names options that Lightning's parser has, and how to see that parser's help."""
    assert cli.main([command, "--help"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) < 60
    with pytest.raises(SystemExit):
        cli.main([command, "--help", "all"])
    whole = capsys.readouterr().out
    assert len(whole.splitlines()) > 300
    options = re.findall(r"^  (?:-h, )?(--[\w.]+)", short, re.MULTILINE)
    assert "--trainer.devices" in options
    assert [option for option in options if f"{option} " not in whole and f"{option}\n" not in whole] == []
    assert f"fusionlab {command} --help all" in short


def test_sections_are_put_in_order() -> None:
    text = "usage: x [--a] [--b]\n\nDoes it.\n\noptions:\n  -h  help\n\nDevices:\n"
    text += "  --d  d (type: X, known subclasses: Y, Z)\n"
    text += "\nMatching:\n  --match M  m\n"
    assert arranged(text, "none") == (
        "usage: x [--a] [--b]\n\nDoes it.\n\nMatching:\n  --match M  m\n\noptions:\n  -h  help\n\n"
        "Devices:\n  --d  d (type: X)\n"
    )
    assert arranged(text, "fuse").startswith(f"usage: fusionlab fuse [options]\n\nExamples:\n  {EXAMPLES['fuse'][0]}\n")
