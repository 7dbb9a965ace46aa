"""Commands that write, what they write, and how to tell that it is whole."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.robustness import strict_reader
from tests.robustness.cases import OUTPUT
from tests.robustness.client import Outcome, Server

_ENDINGS = {".html": b"</html>", ".png": b"IEND\xaeB`\x82"}


@dataclass(frozen=True)
class Job:
    """A command that writes something.

    Attributes:
        argv: without its output; or with ``{output}`` where it stands.
        inputs: what it reads, of the undamaged inputs.
        old: arguments that make another output, to be replaced.
        goes_on: whether it goes on in a folder that is there, instead of replacing it.
        by_parts: whether models of any size are matched a part at a time.
    """

    argv: list[str]
    inputs: tuple[str, ...]
    old: tuple[str, ...] = ()
    goes_on: bool = False
    by_parts: bool = False

    @property
    def command(self) -> str:
        """Its name."""
        return self.argv[0]

    def line(self, output: str, overwrite: bool = False) -> list[str]:
        """The whole command."""
        line = [part.replace("{output}", output) for part in self.argv]
        line += [] if line != self.argv else ["--output", output]
        return [*line, *(["--overwrite"] if overwrite and not self.goes_on else [])]

    def lay_out(self, sound: Path, folder: Path) -> Path:
        """Copy what it reads into a new working folder, which is returned."""
        work = folder / "work"
        for name in self.inputs:
            source, target = sound / name, work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
        return work

    def run(self, server: Server, work: Path, line: list[str], **options: object) -> Outcome:
        """Run a command in its working folder; how it writes is asked here, and not what is in its pictures."""
        places = [work / OUTPUT, work / f".{OUTPUT}*", work / f"..{OUTPUT}*"]
        return server.run(line, work, places, by_parts=self.by_parts, empty_pictures=True, **options)


JOBS = {
    "merge": Job(["merge", "a", "b"], ("a", "b"), ("--weights", "0.9", "0.1")),
    "match": Job(["match", "a", "--anchor", "b"], ("a", "b"), ("--match", "git-rebasin")),
    "match by parts": Job(
        ["match", "bert_a", "--anchor", "bert_b"], ("bert_a", "bert_b"), ("--spaces", "ffn"), by_parts=True
    ),
    # By weights: seconds of learning, which advice would choose, write nothing.
    "fuse": Job(["fuse", "--ckpts", "a", "b", "--match", "weights"], ("a", "b"), ("--weights", "0.9", "0.1")),
    "compare": Job(
        ["compare", "--config", "configs/compare.yaml"], ("configs/compare.yaml", "a", "b"), ("--samples", "40"), True
    ),
    "gather": Job(["gather", "a", "--data", "Digits", "--samples", "40"], ("a",)),
    "fit": Job(
        [
            "fit",
            "--config",
            "configs/fit.yaml",
            "--trainer.default_root_dir",
            "{output}/logs",
            "--trainer.logger",
            "true",
            "--trainer.enable_checkpointing",
            "true",
            "--trainer.callbacks.init_args.output",
            "{output}/exported",
        ],
        ("configs/fit.yaml",),
        goes_on=True,
    ),
    "barrier": Job(["barrier", "a", "b", "--data", "Digits", "--points", "3", "--match", "none"], ("a", "b")),
}


def tree(path: Path) -> dict[str, str]:
    """A digest of every file below a folder (or of a file), by name; logs of TensorBoard have new names each time."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not file.name.startswith("events.out")
    }


def unlike(path: Path, whole: Path) -> str:
    """How an output differs from what an undisturbed run wrote; empty where it does not.

    It has the same files; each can be read to its end; and weights are the same numbers, but for rounding. Times and
    dates in reports differ from run to run.

    Args:
        path: the output.
        whole: that of an undisturbed run.
    """
    names, wanted = tree(path).keys(), tree(whole).keys()
    if names != wanted:
        return f"it has other files: {sorted(names ^ wanted)[:5]}"
    for name in sorted(names):
        file = path / name if path.is_dir() else path
        if file.suffix == ".json":
            try:
                json.loads(file.read_text())
            except ValueError as error:
                return f"{name} is no JSON: {error}"
        elif file.suffix in _ENDINGS and not file.read_bytes().rstrip().endswith(_ENDINGS[file.suffix]):
            return f"{name} ends too early"
        elif file.suffix == ".safetensors":
            found = strict_reader.safetensors(file)
            expected = strict_reader.safetensors(whole / name if whole.is_dir() else whole)
            same = found.keys() == expected.keys() and all(
                np.allclose(found[key], expected[key], rtol=1e-5, atol=1e-6) for key in found
            )
            if not same:
                return f"{name} holds other numbers"
    return ""
