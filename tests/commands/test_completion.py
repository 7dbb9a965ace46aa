"""`fusionlab completion` prints scripts that know every command and option."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fusionlab import cli
from fusionlab.commands.completion import entries, script, whole_parser
from fusionlab.matching.recipe import presets
from tests.commands.conftest import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_know_commands_and_options(command: Command, shell: str) -> None:
    outcome = command("completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    for word in (*cli.COMMANDS, "learned", "git-rebasin"):
        assert word in outcome.out
    assert ("--overwrite" if shell != "fish" else "overwrite") in outcome.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A shell that has read the script answers with commands, options, presets, methods and files."""
    for name in ("model_a", "model_b"):
        (tmp_path / name).mkdir()
    assert cli.main(["completion", "bash"]) == 0
    script = capfd.readouterr().out
    ask = 'COMP_WORDS=({words}); COMP_CWORD={last}; _shtab_fusionlab; printf "%s\\n" "${{COMPREPLY[@]}}"'
    for words, expected in (
        (["fusionlab", "adv"], "advise"),
        (["fusionlab", "fuse", "--overw"], "--overwrite"),
        (["fusionlab", "fuse", "--match", "lear"], "learned"),
        (["fusionlab", "fuse", "--method", "regm"], "regmean"),
        (["fusionlab", "reproduce", "tab"], "table1"),
        (["fusionlab", "merge", "model_a", "mod"], "model_b"),
        (["fusionlab", "fuse", "--ckpts", "model_a", "mod"], "model_b"),
        (["fusionlab", "fuse", "--ckpts", "model_a", "model_b", "--mat"], "--match"),
        (["fusionlab", "fuse", "--ckpts", "model_a", "model_b", "--match", "lear"], "learned"),
    ):
        line = ask.format(words=" ".join(words), last=len(words) - 1)
        call = ["bash", "-c", f"{script}\n{line}"]
        found = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert expected in found.stdout.split(), (words, found.stderr)
        assert "model_a" not in found.stdout.split() or words[-1] == "mod", words


def test_options_are_those_of_the_help() -> None:
    page = cli.help_page("fuse").read_text(encoding="utf-8")
    found = {entry.name: entry for entry in entries(page)}
    assert found["--match"].choices == ["auto", *presets()]
    assert found["--overwrite"].switch
    assert not found["--output"].switch
    assert found["--output"].words.startswith("Folder to write")
    assert [e.name for e in entries(cli.help_page("barrier").read_text())][:2] == ["anchor", "source"]
    parser = whole_parser()
    assert parser.parse_args(["fuse", "--match", "learned"]).match == "learned"
    assert parser.parse_args(["fuse", "--temperatures", "3"]).temperatures == "3", "options of research"
    assert ".help" not in script("bash"), "no option for help, of a command or of an option"


def test_other_shells_are_refused(command: Command) -> None:
    outcome = command("completion", "powershell")
    assert (outcome.code, outcome.out) == (2, "")
    assert "shell" in outcome.err
