"""``fusionlab completion``: scripts that let a shell complete commands and options, by shtab.

The options are those of the help pages, so that no command has to be imported.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fusionlab import cli
from fusionlab.commands import parsing
from fusionlab.commands.option_groups import add_fields

DESCRIPTION = """Print a script that lets a shell complete commands, options and their values.

Options of research are among them; those of classes and of other options, such as --polish.steps, are not.
For bash: fusionlab completion bash > ~/.local/share/bash-completion/completions/fusionlab. For zsh: into a file
_fusionlab in a folder of fpath. For fish: into ~/.config/fish/completions/fusionlab.fish."""
# An option at the start of an entry of a help page: its name, and what stands behind it.
_ENTRY = re.compile(r"^  (?:-\w, )?(--[\w.-]+)(.*)$")
# Of commands that train, whose help depends on the classes that are named beside it.
# Files, or options where one is begun behind an option that takes several values, where shtab lists all files.
_BASH = """
_fusionlab_files() {
  if [[ "${COMP_WORDS[COMP_CWORD]}" == -* ]]; then
    compgen -W "${current_option_strings[*]}" -- "${COMP_WORDS[COMP_CWORD]}"
  else
    compgen -f -- "$1"
  fi
}
"""
_POSITIONAL = re.compile(r"^  (\w+|\{[\w,-]+\})(?:  |$)")


@dataclass(frozen=True)
class CompletionOptions:
    """The shell.

    Attributes:
        shell: ``bash``, ``zsh`` or ``fish``.
    """

    shell: Literal["bash", "zsh", "fish"]


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: another shell.
    """
    parser = parsing.make_parser("completion", DESCRIPTION, seed=False)
    add_fields(parser, CompletionOptions, positional=("shell",))
    print(script(parsing.parse(parser, argv).shell))


def script(shell: str) -> str:
    """The completion script of a shell.

    Args:
        shell: one that shtab knows.
    """
    import shtab  # noqa: PLC0415 - of no other command

    return str(shtab.complete(whole_parser(), shell, preamble=_BASH if shell == "bash" else ""))


def whole_parser() -> ArgumentParser:
    """A parser of all commands as plain argparse has it: names of options, values where there is a choice, no types."""
    import shtab  # noqa: PLC0415

    parser, files = ArgumentParser("fusionlab"), {**shtab.FILE, "bash": "_fusionlab_files"}
    _repeat(parser, _switch("--version", "print the version"), files)
    commands = parser.add_subparsers()
    for command, words in cli.COMMANDS.items():
        one, page = commands.add_parser(command, help=words, description=words), cli.help_page(command)
        for switch, told in (("--quiet", "print errors only"), ("--verbose", "print progress in logs too")):
            _repeat(one, _switch(switch, told), files)
        for entry in entries(page.read_text(encoding="utf-8")):
            if entry.name != "--help" and not entry.name.endswith(".help"):
                _repeat(one, entry, files)
    return parser


def entries(page: str) -> Iterator[Namespace]:
    """The options and places of a help page.

    Args:
        page: the text that ``--help`` of a command prints.

    Yields:
        ``name``, whether it is a ``switch`` or takes a ``list``, its ``choices`` (none where anything goes), and
        ``words`` on it.
    """
    found: Namespace | None = None
    for line in page.splitlines():
        option, place = _ENTRY.match(line), _POSITIONAL.match(line)
        if option or place:
            if found is not None:
                yield _finished(found)
            name = (option or place).group(1)  # type: ignore[union-attr]
            rest = option.group(2) if option else name
            found = Namespace(name=name, signature=rest.partition("  ")[0], words=rest.partition("  ")[2].strip())
            if place:
                found.words = line[place.end() :].strip()
        elif found is not None and line.startswith("      "):
            # A word may be broken at its hyphen.
            gap = "" if found.words.endswith("-") else " "
            found.words = f"{found.words}{gap}{line.strip()}".strip()
        elif found is not None:
            yield _finished(found)
            found = None
    if found is not None:
        yield _finished(found)


def _finished(found: Namespace) -> Namespace:
    """The entry with its choices: presets, kinds or types, if it lists some."""
    listed = re.search(r"Presets: (.*?)\. ?(?:\(|$)", found.words)
    choices = re.findall(r"(?:^|; )([\w-]+) \(", listed.group(1)) if listed else []
    if plainly := re.search(r"(?:Methods|Experiments|Types): ([\w, -]+)\.", found.words):
        choices = plainly.group(1).split(", ")
    in_braces = re.search(r"\{([\w,-]+)\}", found.signature)
    if in_braces and in_braces.group(1) != "true,false":
        choices = in_braces.group(1).split(",")
    is_switch = found.name.startswith("--") and (not found.signature.strip() or "[{true,false}]" in found.signature)
    words = re.split(r"(?<=\.) |\. \(| \((?:required|type)", found.words)[0]
    is_list = "..." in found.signature
    return Namespace(name=found.name, switch=is_switch, list=is_list, choices=choices, words=words)


def _switch(name: str, words: str) -> Namespace:
    return Namespace(name=name, switch=True, list=False, choices=[], words=words)


def _repeat(parser: ArgumentParser, entry: Namespace, files: Mapping[str, object]) -> None:
    """Give a parser an option that a help page has."""
    words = entry.words.replace("%", "%%")
    declare = parser.add_argument
    if entry.switch:
        declare(entry.name, action="store_true", help=words)
        return
    is_place = not entry.name.startswith("--")
    takes = {"nargs": "*"} if entry.list or (is_place and not entry.choices) else {}
    added = declare(entry.name.strip("{}"), help=words, choices=entry.choices or None, **takes)  # type: ignore[arg-type]
    if not entry.choices:
        added.complete = files  # type: ignore[attr-defined]
