"""A process that has paid the imports and forks a child for each command: ``python -m tests.robustness.server``.

One line of JSON on standard input is one command, one line on standard output is what became of it (see `client`).
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fusionlab.merging
from tests.pictures import leave_empty
from tests.robustness.watching import Watch

COMMANDS = (
    "merge", "merge_models", "merge_lora", "extracted", "match", "fuse", "inspect", "gather", "barrier", "compare",
    "train",
)  # fmt: skip
# Read lazily by the libraries; here once, instead of in every child.
MODULES = (
    "transformers.models.vit.modeling_vit", "transformers.models.bert.modeling_bert", "transformers.models.auto",
    "transformers.tokenization_utils_tokenizers", "timm.models.vision_transformer", "fusionlab.evaluation.plots",
    "fusionlab.evaluation.tensorboard", "datasets.packaged_modules.csv.csv", "tests.robustness.sound",
    "datasets.packaged_modules.json.json", "datasets.packaged_modules.parquet.parquet", "yaml", "torch._dynamo",
    "torch.utils.serialization", "attrs", "fusionlab.cli", "fusionlab.exits", "fusionlab.checkpoints.extraction",
)  # fmt: skip
# Of the clock, so many times the seconds that a command may take of a processor: other programs may have it meanwhile.
WAITED = 10
_NEW_MOUNTS, _NEW_USERS, _PRIVATE = 0x20000, 0x10000000, 0x4000 | 0x40000


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    importlib.import_module("torch").set_num_threads(1)
    warm()
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


def warm() -> None:
    """Import what children use, and make what the libraries make once, so that no child pays for it again.

    What is there then is frozen, as a command of its own process freezes what it has imported (see `fusionlab.cli`).
    """
    merging = (f"fusionlab.merging.{module.name}" for module in pkgutil.iter_modules(fusionlab.merging.__path__))
    for module in (*(f"fusionlab.commands.{name}" for name in COMMANDS), *merging, *MODULES):
        importlib.import_module(module)
    with contextlib.suppress(ImportError, AttributeError):  # none in some versions
        # The names of weights in files of every architecture, a sixth of a second.
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("vit")
    gc.collect()
    gc.freeze()


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Fork a child, watch its time and memory, send it the signal it is to get, and collect what it tells."""
    # What it tells the server, its standard output and its standard error. Files would be subject to limits on files.
    pipes = [os.pipe() for _ in range(3)]
    pid = os.fork()
    if pid == 0:
        for reading, _ in pipes:
            os.close(reading)
        _child(request, *(writing for _, writing in pipes))
    for reading, writing in pipes:
        os.close(writing)
        os.set_blocking(reading, False)
    start = time.monotonic()
    found: dict[str, Any] = {"network": [], "program": [], "outside": [], "change": [], "left": [], "stopped": None}
    base, most = _resident(pid), 0
    signals = sorted(request.get("signals", ()))
    texts = [b"", b"", b""]
    while True:
        _read(pipes, texts)
        ended, status, _ = os.wait4(pid, os.WNOHANG)
        seconds = time.monotonic() - start
        if ended:
            break
        most = max(most, _resident(pid) - base)
        if signals and seconds >= signals[0][0]:
            os.kill(pid, signals.pop(0)[1])
        is_late = _processor(pid) > request["seconds"] or seconds > WAITED * request["seconds"]
        if is_late or most > request["bytes"]:
            found["stopped"] = "time" if is_late else "memory"
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            status = signal.SIGKILL
            break
        time.sleep(0.005 if seconds < 0.5 else 0.02)
    # Whatever the child started must not outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _read(pipes, texts)
    for reading, _ in pipes:
        os.close(reading)
    told, found["out"], found["err"] = (text.decode("utf-8", errors="replace") for text in texts)
    for line in told.splitlines():
        for kind, value in json.loads(line).items():
            found[kind].append(value)
    code = os.waitstatus_to_exitcode(status)
    return found | {"code": code, "seconds": seconds, "grown": most}


def _child(request: dict[str, Any], report: int, out: int, err: int) -> None:
    """Everything that a child does; it never returns."""
    code = 99
    try:
        os.setpgid(0, 0)
        _streams(out, err)
        os.chdir(request["cwd"])
        os.environ.update(request.get("environment", {}))
        os.environ["TMPDIR"] = request["temporary"]
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if request.get("volume"):
            _mount(*request["volume"])
        if request.get("file_size"):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"], request["file_size"]))
        if request.get("hide_free_space"):
            _hide_free_space()
        watch = Watch(report, request["may_write"], request.get("kill_at"))
        watch.start()
        code = _run(request)
        sys.stdout.flush()
        sys.stderr.flush()
        if request.get("volume"):
            for path in sorted(Path(request["volume"][0]).rglob("*")):
                watch.tell("left", str(path))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 99
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _run(request: dict[str, Any]) -> int:
    if request.get("by_parts"):
        sys.modules["fusionlab.commands.match_stream"].__dict__["IN_MEMORY"] = 0
    if request.get("empty_pictures"):
        leave_empty(pytest.MonkeyPatch())
    if "call" in request:
        module, function = request["call"].split(":")
        getattr(importlib.import_module(module), function)(**request["arguments"])
        return 0
    # As the console script is started, which keeps its handlers of signals to the very end.
    sys.argv = ["fusionlab", *request["argv"]]
    try:
        return importlib.import_module("fusionlab.cli").main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _streams(out: int, err: int) -> None:
    """Standard streams through new objects: those of the server may hold what it never wrote."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)


def _mount(folder: str, size: int) -> None:
    """A file system of `size` bytes that this process alone sees and that goes with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        user, group = os.getuid(), os.getgid()
        _check(libc.unshare(_NEW_USERS | _NEW_MOUNTS))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    else:
        _check(libc.unshare(_NEW_MOUNTS))
    _check(libc.mount(b"none", b"/", None, _PRIVATE, None))
    _check(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={size}".encode()))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _hide_free_space() -> None:
    """Let a disk seem empty until it is full, as another program's writing makes it."""
    plenty = types.SimpleNamespace(total=2**60, used=0, free=2**60)
    shutil.disk_usage = lambda path: plenty  # type: ignore[assignment, return-value]
    asked = os.statvfs

    def statvfs(path: Any) -> os.statvfs_result:
        return os.statvfs_result((*asked(path)[:2], 2**40, 2**40, 2**40, *asked(path)[5:]))

    os.statvfs = statvfs


def _processor(pid: int) -> float:
    """Seconds of a processor that a process has taken."""
    # Behind its name, which may hold spaces.
    user, system = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _read(pipes: Sequence[tuple[int, int]], texts: list[bytes]) -> None:
    """Add what is in pipes to what was in them."""
    for index, (pipe, _) in enumerate(pipes):
        while True:
            try:
                part = os.read(pipe, 65536)
            except BlockingIOError:
                break
            if not part:
                break
            texts[index] += part


def nothing() -> None:
    """Do nothing: the child only finds out whether a small file system may be mounted."""


if __name__ == "__main__":
    main()
