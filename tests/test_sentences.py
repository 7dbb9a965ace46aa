"""Every exception that an input, a disk or a machine explains becomes one sentence with a way on; no other does."""

import errno
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from PIL import Image
from safetensors.torch import load_file, save_file

from fusionlab.errors import InputError
from fusionlab.sentences import SYSTEM_ERRORS, sentence, system_error
from fusionlab.symmetry import SymmetryError
from fusionlab.symmetry.infer.blueprint import UnreadError
from fusionlab.symmetry.infer.shrink import NotShrunkError


def raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("name", [name for name in SYSTEM_ERRORS if hasattr(errno, name)])
def test_errors_of_the_system_name_the_file_and_a_way_on(name: str) -> None:
    """One sentence for every number, of str and of bytes names."""
    number = getattr(errno, name)
    for path in ("some/file", b"some/file"):
        found = sentence(OSError(number, os.strerror(number), path))
        assert found is not None
        assert found.startswith("some/file: ")
        assert "; " in found
        assert "\n" not in found


def test_a_number_that_nobody_knows_has_the_systems_words() -> None:
    """And the file all the same."""
    found = sentence(OSError(errno.EMLINK, "Too many links", "here"))
    assert found is not None
    assert found.startswith("here: ")
    assert "Too many links" in found


def damaged(folder: Path, name: str) -> str:
    (folder / name).write_bytes(b"\x80\x05 not one of these \xff" * 20)
    return str(folder / name)


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (lambda folder: load_file(damaged(folder, "x.safetensors")), "safetensors file is damaged"),
        (lambda folder: save_file({"a": torch.zeros(9)}, folder / "no" / "x"), "no such file or folder; expected"),
        (lambda folder: yaml.safe_load("a: [1"), "no valid YAML"),
        (lambda folder: json.loads("{"), "no valid JSON"),
        (lambda folder: pickle.loads(b"\x80\x05junk"), "holds more than tensors and plain data"),
        (lambda folder: pyarrow.parquet.read_table(damaged(folder, "x.parquet")), "data file is damaged"),
        (lambda folder: datasets.load_dataset("json", data_files=damaged(folder, "y.json")), "data set cannot"),
        (lambda folder: Image.open(damaged(folder, "x.png")), "image cannot be read"),
        (lambda folder: Path(damaged(folder, "x.txt")).read_text(encoding="utf-8"), "not UTF-8"),
        (lambda folder: Path(folder / ("x" * 300)).read_text(), "name is too long"),
        (lambda folder: torch.empty(2**60), "memory ran out"),
        (lambda folder: np.zeros(2**50), "memory ran out"),
        (lambda folder: json.loads("[" * 100_000), "nested too deeply"),
    ],
)
def test_what_libraries_raise(fail: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    """The real exceptions of the versions that are installed."""
    found = sentence(raised(lambda: fail(tmp_path)))
    assert found is not None
    assert words in found
    assert "; " in found
    assert "\n" not in found
    assert len(found) < 500


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("x is 1;\n expected 2."), "x is 1; expected 2"),
        (SymmetryError("no such architecture"), "no such architecture"),
        (UnreadError("input_ids alone leave others unread", is_of_experts=False), "leave others unread"),
        (NotShrunkError("no inputs could be guessed"), "no inputs could be guessed"),
        (MemoryError(), "memory ran out; use"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "Tried to allocate 2.00 GiB"),
        (MisconfigurationException("no such device"), "no such device"),
        (OSError("it looks like there is no such model"), "it looks like there is no such model; expected"),
    ],
)
def test_others(error: Exception, words: str) -> None:
    """What arrives with words of its own keeps them."""
    found = sentence(error)
    assert found is not None
    assert words in found


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a"), TypeError("b"), KeyError("c"), RuntimeError("d"), ValueError()]
)
def test_an_error_of_fusionlab_is_none_of_these(error: Exception) -> None:
    """Not even where it was raised while an input was being refused; it is where that is its cause."""
    assert sentence(error) is None

    def during() -> None:
        try:
            raise InputError("refused")
        except InputError:
            raise error  # noqa: B904

    assert sentence(raised(during)) is None
    error.__cause__ = InputError("refused")
    assert sentence(error) == "refused"


def test_causes_in_a_circle_end() -> None:
    """Nobody should make such, but the words must come."""
    one, other = TypeError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert sentence(one) is None


def test_the_error_behind_a_library_that_writes(tmp_path: Path) -> None:
    """safetensors tells the system's number in its words, and torch none at all; other errors are not of the system."""
    failed = raised(lambda: save_file({"a": torch.zeros(9)}, tmp_path / "no" / "x"))
    assert not isinstance(failed, OSError) or failed.filename is None
    found = system_error(failed, tmp_path / "out")
    assert found is not None
    assert (found.errno, found.filename) == (errno.ENOENT, str(tmp_path / "out"))
    torch_words = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
    found = system_error(torch_words, tmp_path / "out")
    assert found is not None
    assert found.errno == errno.ENOSPC
    assert re.fullmatch(rf"{tmp_path}/out: no space is left on its disk; .*", sentence(found) or "")
    assert system_error(RuntimeError("shapes differ"), tmp_path) is None
