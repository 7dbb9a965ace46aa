"""How much memory something takes above what is held before it (Linux, glibc)."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path


def peak_above(run: Callable[[], object]) -> float:
    """The high-water mark of this process while `run` runs, above what it held before, in MiB."""
    gc.collect()
    # Memory that is free but not yet handed back would hide as much of what is measured.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    held = _status("VmRSS")
    run()
    return _status("VmHWM") - held


def _status(field: str) -> float:
    """A field of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))
