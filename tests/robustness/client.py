"""Asking the fork server to run commands, and what became of them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS, BYTES = 60.0, 2 * 2**30
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    """Its exit code; the negative number of the signal that ended it."""
    out: str
    err: str
    seconds: float
    grown: int
    """Bytes of memory that it held above what it began with, at most."""
    stopped: str | None
    """``time`` or ``memory`` when it was stopped for taking too much."""
    network: tuple[str, ...]
    """Attempts to reach the network; all of them fail."""
    programs: tuple[str, ...]
    """Programs that it started."""
    outside: tuple[str, ...]
    """Changes of files that it had no business with."""
    changes: tuple[str, ...]
    """All changes of files, in order."""
    left: tuple[str, ...]
    """What is on its own small file system in the end, where it had one."""


class Server:
    """A process that forks children which have all imports behind them.

    Args:
        folder: of its own, for its home, its caches and the streams of its children.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        for name in ("home", "cache", "temporary"):
            (folder / name).mkdir(parents=True)
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = os.environ | one_thread | {
            "HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary"), "XDG_CACHE_HOME": str(self.cache),
            "FUSIONLAB_CACHE": str(self.cache / "fusionlab"),
            "HF_HOME": str(self.cache / "huggingface"), "MPLCONFIGDIR": str(self.cache / "matplotlib"),
            "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY),
            "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        # Online as a user is: that no command goes there is for the guard to see.
        environment.pop("HF_HUB_OFFLINE", None)
        self._log = (folder / "server.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=REPOSITORY, env=environment,
        )  # fmt: skip
        self._count = 0
        self._answer()

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._log.close()

    def run(self, argv: Sequence[str], cwd: Path, may_write: Sequence[str | Path], **options: Any) -> Outcome:
        """Run ``fusionlab`` in a child.

        Args:
            argv: arguments of the command.
            cwd: its working folder; its temporary files go to ``temporary`` beside it.
            may_write: files and folders that it may write, and beginnings of names that end in ``*``.
            options: ``seconds`` of a processor and ``bytes`` it may take; ``signals``, pairs of a time and a number;
                ``kill_at``, a change of files at which it is killed; ``volume``, a folder and the size of the file
                system that is put there; ``file_size``, the most that a file may hold; ``hide_free_space``;
                ``environment``; ``by_parts``, whether models of any size are matched a part at a time, where they can
                be; ``empty_pictures``, whether pictures are written without anything drawn in them.
        """
        return self._ask({"argv": list(argv)}, cwd, may_write, options)

    def call(self, function: str, cwd: Path, may_write: Sequence[str | Path], **arguments: Any) -> Outcome:
        """Call ``module:function`` in a child; keywords that `run` knows go to the server, the others to it."""
        known = (
            "seconds",
            "bytes",
            "signals",
            "kill_at",
            "volume",
            "file_size",
            "hide_free_space",
            "environment",
            "by_parts",
        )
        options = {name: arguments.pop(name) for name in known if name in arguments}
        return self._ask({"call": function, "arguments": arguments}, cwd, may_write, options)

    def _ask(
        self, what: dict[str, Any], cwd: Path, may_write: Sequence[str | Path], options: dict[str, Any]
    ) -> Outcome:
        self._count += 1
        temporary = cwd.parent / "temporary"
        temporary.mkdir(exist_ok=True)
        places = [str(place) for place in (*may_write, temporary, self.folder / "temporary", self.cache)]
        request = {"seconds": SECONDS, "bytes": BYTES} | what | options | {
            "cwd": str(cwd), "temporary": str(temporary), "may_write": places,
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        told = self._answer()
        texts = [told["out"], told["err"]]
        lists = [tuple(told[name]) for name in ("network", "program", "outside", "change", "left")]
        return Outcome(told["code"], *texts, told["seconds"], told["grown"], told["stopped"], *lists)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server has ended: {(self.folder / 'server.log').read_text()[-2000:]}")
        return json.loads(line)
