"""The files, commands and scripts that a page of the docs shows, in their order."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sh|yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages whose commands run one after another on what `stand_ins.make` makes.
PAGES = ("start/two_text_classifiers.md", "start/two_llamas.md", "start/two_vits.md", "guides/privacy.md")
# What is added to a command so that it is done in seconds; an option that is given twice counts as given last.
SMALLER = {
    "fit": "--trainer.max_epochs 1 --trainer.limit_train_batches 4 --model.model.num_hidden_layers 2 "
    "--model.model.hidden_size 16",
    "fuse": "--points 3",
}
LEARNED = "--steps 4 --samples 64"


@dataclass(frozen=True)
class Step:
    """One thing that a page asks its reader to do.

    `kind` is ``"command"`` (arguments of ``fusionlab``), ``"file"`` (a name and a text) or ``"script"`` (Python).
    """

    kind: str
    words: tuple[str, ...]


def steps(page: str) -> list[Step]:
    """Everything that a page asks for; a YAML block is a file if its first line is a comment that names one.

    Args:
        page: under ``docs/``.
    """
    found = []
    for kind, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if kind == "python":
            found.append(Step("script", (text,)))
        elif kind == "yaml" and (named := re.match(r"# (\S+\.yaml)\n", text)):
            found.append(Step("file", (named[1], text)))
        elif kind == "sh":
            lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
            found += [Step("command", tuple(words[1:])) for words in lines if words[:1] == ["fusionlab"]]
    return found


def smaller(command: tuple[str, ...]) -> list[str]:
    """The arguments of a command that does the same in seconds."""
    added = shlex.split(SMALLER.get(command[0], ""))
    return [*command, *added, *(shlex.split(LEARNED) if "learned" in command else [])]
