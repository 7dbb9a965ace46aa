"""A process that has paid the imports, and children of it that run tests in a copy of the checkout.

The parent imports everything but fusionlab and its tests; each child imports those from the copy, where one file is
mutated. Nothing in the checkout changes.
"""

import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

OURS = ("fusionlab", "tests", "conftest", "__main__")
HEAVY = (
    *("torch", "torch.utils.tensorboard", "torchvision", "transformers", "lightning", "timm", "datasets", "sklearn"),
    *("scipy.optimize", "matplotlib.pyplot", "torchmetrics", "ot", "lap", "jsonargparse", "hypothesis", "pytest"),
)
MEMORY = 6 * 2**30
KILLED_BY_ALARM = -signal.SIGALRM


def settle() -> None:
    """Set what must be set before the imports: one thread everywhere, no model hub."""
    single = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS")
    os.environ |= dict.fromkeys(single, "1") | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"}
    sys.setrecursionlimit(5000)  # parso's trees and cosmic-ray's walks are recursive


def warm(modules: Iterable[str]) -> None:
    """Import them, as far as they can be."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)


def imported() -> list[str]:
    """The modules that this process has imported and that are none of ours."""
    return sorted(name for name in list(sys.modules) if name.split(".")[0] not in OURS)


def side_by_side(jobs: Iterable[Callable[[], None]]) -> None:
    """Run each job in a process of its own; one that fails stops the whole run."""
    workers = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                job()
                code = 0
            except SystemExit as end:
                print(end, flush=True)
            finally:
                os._exit(code)
        workers.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in workers]
    if any(statuses):
        raise SystemExit("stopped: one of the processes ended early")


class Copy:
    """A copy of the checkout's files in a temporary folder, in which one file may be changed for a while."""

    def __init__(self, root: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fusionlab-mutants-"))
        self.root = self.folder / "tree"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (root / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.root / name)

    def write(self, file: str, text: str) -> None:
        """Change a file; its compiled form goes, since it would be taken for the new text's within the same second."""
        path = self.root / file
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def run(self, job: Callable[[], int], seconds: float, keep_bytecode: bool = False) -> int:
        """The exit code of a job in a child of this process; negative is the signal that ended it.

        The child lives in the copy, in a session of its own whose every process ends with it, with an own temporary
        folder and at most `MEMORY` bytes of data.
        """
        temporary = self.folder / "tmp"
        temporary.mkdir()
        pid = os.fork()
        if pid == 0:
            self._become(temporary, keep_bytecode)
            code = 70
            try:
                code = job()
            finally:
                os._exit(code)
        code = _wait(pid, seconds)
        shutil.rmtree(temporary, ignore_errors=True)
        return code

    def _become(self, temporary: Path, keep_bytecode: bool) -> None:
        os.setsid()
        os.chdir(self.root)
        os.environ |= {"PYTHONPATH": str(self.root), "TMPDIR": str(temporary), "HOME": str(temporary)}
        tempfile.tempdir = None
        sys.path[:] = [str(self.root), *(path for path in sys.path if not _is_ours(path))]
        for name in [name for name in sys.modules if name.split(".")[0] in OURS[:3]]:
            del sys.modules[name]
        importlib.invalidate_caches()
        sys.dont_write_bytecode = not keep_bytecode
        if not keep_bytecode:
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_ours(path: str) -> bool:
    """A folder that holds some fusionlab: the checkout, from which nothing may come."""
    return (Path(path or ".") / "fusionlab" / "__init__.py").is_file()


def _wait(pid: int, seconds: float) -> int:
    """Wait for a child, at most so long, and end what it has left running."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        return KILLED_BY_ALARM
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
