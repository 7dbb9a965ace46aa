"""A streamed merge that is ended goes on with complete files, and writes the bytes that it would have written."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fusionlab.atomic import MANIFEST, atomic_folder
from fusionlab.merging import find_method
from fusionlab.streaming import Manifest, Recipe, StoredModel, Streamed, made_of, refuse_other, stream_merge
from tests.streaming.folders import near, random_tensors, write


class EndedError(Exception):
    """A merge was ended."""


def folders(tmp_path: Path, tied: bool = False) -> list[StoredModel]:
    """Two models of four files, of which tied ones have one table in two of them."""
    base = random_tensors(5)
    models = [near(base, seed) for seed in range(2)]
    config: dict[str, Any] = {}
    if tied:
        for model in models:
            model["zz.head"] = model["table"].clone()
        config = {"vocab_size": 9, "tie_word_embeddings": True}
    return [write(tmp_path / str(i), model, 4, **config) for i, model in enumerate(models)]


def merged(
    stored: list[StoredModel], folder: Path, after: int | None = None, method: str = "simple"
) -> tuple[Streamed, list[str]]:
    """A merge into a folder, ended when so many bytes are told; with the files that it found complete."""
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).touch()
    manifest = Manifest(folder, made_of({"method": method}, {str(i): model for i, model in enumerate(stored)}))
    told = 0

    def advance(size: int) -> None:
        nonlocal told
        told += size
        if after is not None and told >= after:
            raise EndedError

    recipe = Recipe(find_method(method), {}, [0.5, 0.5], seed=3)
    return stream_merge(stored, None, recipe, folder, None, advance, manifest), sorted(manifest.finished)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("method", ["simple", "karcher"])
def test_the_same_bytes_after_every_end(tmp_path: Path, method: str, tied: bool) -> None:
    """Ended again and again, a little later each time: the same files and distances as in one go."""
    stored = folders(tmp_path, tied)
    expected, _ = merged(stored, tmp_path / "whole", method=method)
    size = sum(len(content) for content in contents(tmp_path / "whole").values())
    found: list[int] = []
    for part in (0.2, 0.5, 0.8, 0.97):
        with pytest.raises(EndedError):
            merged(stored, tmp_path / "parts", round(part * size), method)
        found.append(len((tmp_path / "parts" / MANIFEST).read_text().splitlines()) - 1)
    again, finished = merged(stored, tmp_path / "parts", method=method)
    assert again == expected
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert len(finished) == found[-1] > 0
    assert found == sorted(found)


def test_complete_files_are_not_written_again(tmp_path: Path) -> None:
    """All are found, and none changes."""
    stored = folders(tmp_path)
    merged(stored, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.safetensors")}
    _, finished = merged(stored, tmp_path / "out")
    assert finished == sorted(path.name for path in before)
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize("damage", ["a byte", "a line", "the description"])
def test_what_the_manifest_does_not_vouch_for_is_written_again(tmp_path: Path, damage: str) -> None:
    """A file that changed, a line that was cut short, and a manifest of another merge."""
    stored = folders(tmp_path)
    merged(stored, tmp_path / "out")
    whole = contents(tmp_path / "out")
    manifest, file = tmp_path / "out" / MANIFEST, sorted((tmp_path / "out").glob("*.safetensors"))[-1]
    lines = manifest.read_text().splitlines()
    if damage == "a byte":
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "a line":
        manifest.write_text("\n".join(lines)[:-5])
    else:
        manifest.write_text("\n".join([json.dumps({"other": 1}), *lines[1:]]))
    _, finished = merged(stored, tmp_path / "out")
    assert len(finished) == (0 if damage == "the description" else 3)
    assert contents(tmp_path / "out") == whole


def test_what_a_merge_is_made_of(tmp_path: Path) -> None:
    """The same files are told from changed ones and other options."""
    (first, second) = folders(tmp_path)
    described = made_of({"seed": 0}, {"a": first, "b": second})
    assert made_of({"seed": 0}, {"a": first, "b": second}) == described
    assert made_of({"seed": 1}, {"a": first, "b": second}) != described
    assert made_of({"seed": 0}, {"a": second, "b": first}) != described
    file = next(iter(second.tensors.values())).file
    file.write_bytes(file.read_bytes() + b"x")
    assert made_of({"seed": 0}, {"a": first, "b": second}) != described


def test_the_place_of_what_is_left_counts(tmp_path: Path) -> None:
    """A file that is not complete is written over, so after a full disk its place need not be free once more."""
    (first, second), size = folders(tmp_path), 2**20
    described = made_of({}, {"a": first, "b": second})
    assert refuse_other(tmp_path / "out", described) == 0

    def fill() -> None:
        with atomic_folder(tmp_path / "out", resume=True) as folder:
            Manifest(folder, described)
            with (folder / "half").open("wb") as file:
                file.write(os.urandom(size))
                os.fsync(file.fileno())
            raise EndedError

    with pytest.raises(EndedError):
        fill()
    assert refuse_other(tmp_path / "out", described) > size / 2
