"""What no command may do, done on purpose: the harness has to see all of it."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch


def writes(path: str) -> None:
    """Write a file."""
    Path(path).write_text("x")


def writes_and_removes(path: str) -> None:
    """Write a file and remove it again."""
    Path(path).write_text("x")
    os.remove(path)


def connects() -> None:
    """Reach for a server, and carry on when there is none."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 9), timeout=1)


def starts_a_program() -> None:
    """Start a program."""
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def takes(size: int) -> None:
    """Take memory, all at once."""
    torch.ones(size, dtype=torch.uint8)
    time.sleep(5)


def sleeps(duration: float) -> None:
    """Wait, in seconds."""
    time.sleep(duration)


def computes(duration: float) -> None:
    """Keep a processor busy, in seconds of it."""
    while time.process_time() < duration:
        pass


def fails() -> None:
    """Fail as a bug does."""
    raise ZeroDivisionError("a bug")
