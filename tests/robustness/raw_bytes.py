"""Damage that knows nothing of a file's format."""

import os
import random
import socket
from pathlib import Path

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 440449768\n"


def cut(draw: random.Random, content: bytes) -> bytes:
    """The beginning; often of the first hundred bytes, where headers are."""
    return content[: draw.randrange(min(len(content), draw.choice([100, len(content), len(content)])))]


def flipped(draw: random.Random, content: bytes, start: int = 0, stop: int | None = None) -> bytes:
    """One to eight bits turned over, between two places."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(start, len(content) if stop is None else min(stop, len(content)))] ^= (
            1 << draw.randrange(8)
        )
    return bytes(changed)


def overwritten(draw: random.Random, content: bytes) -> bytes:
    """A stretch of zeros, ones or noise somewhere, as a bad sector leaves."""
    size = draw.randint(1, min(4096, len(content)))
    start = draw.randrange(len(content) - size + 1)
    noise = draw.choice([bytes(size), b"\xff" * size, draw.randbytes(size)])
    return content[:start] + noise + content[start + size :]


def stretched(draw: random.Random, content: bytes) -> bytes:
    """Bytes put in or taken out, before, within or behind."""
    start, size = draw.choice([0, len(content), draw.randrange(len(content))]), draw.randint(1, 64)
    if draw.random() < 0.5:
        return content[:start] + draw.randbytes(size) + content[start:]
    return content[:start] + content[start + size :] if start < len(content) else content[:-size]


def replaced(draw: random.Random, content: bytes) -> bytes:
    """Something else altogether."""
    return draw.choice([
        b"", b"\0", b"\0" * 4096, b"\xff" * 8, LFS_POINTER, b"<html><body>404</body></html>", b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18), b"\x80\x02.", b"{}", b"null", draw.randbytes(512), content * 2,
    ])  # fmt: skip


ANY = (cut, flipped, flipped, overwritten, stretched, replaced)


def damage(draw: random.Random, path: Path) -> None:
    """Damage a file in any of these ways."""
    content = path.read_bytes()
    changed = draw.choice(ANY)(draw, content)
    path.write_bytes(changed if changed != content else content[:-1])


def unreadable(draw: random.Random, path: Path) -> str:
    """Put something that is no plain file in a file's place: a device, a pipe, a folder, a link that leads nowhere."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    what = draw.choice(["zero", "random", "full", "pipe", "folder", "nowhere", "loop", "socket", "linked pipe"])
    if what in ("zero", "random", "full"):
        path.symlink_to({"zero": "/dev/zero", "random": "/dev/urandom", "full": "/dev/full"}[what])
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "linked pipe":
        os.mkfifo(path.parent / "pipe")
        path.symlink_to("pipe")
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        here = os.getcwd()
        try:
            os.chdir(path.parent)  # the name of a socket may not be long
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        finally:
            os.chdir(here)
    else:
        path.symlink_to("no-such-file" if what == "nowhere" else path.name)
    return what
