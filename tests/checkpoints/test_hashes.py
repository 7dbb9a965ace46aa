"""Hashes are those of the files, whatever kind of checkpoint they are, and computed once."""

import hashlib
from pathlib import Path

import pytest

from fusionlab.checkpoints import hashes
from fusionlab.checkpoints.hashes import hashes_of


def written(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text * 300_000)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_files_of_every_kind(tmp_path: Path) -> None:
    """Shards, a single file, an adapter, a file by itself; other files of a folder are none of the weights."""
    shards = {name: written(tmp_path / "a" / name, name) for name in ("model-1.safetensors", "model-2.safetensors")}
    index = '{"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}'
    (tmp_path / "a" / "model.safetensors.index.json").write_text(index)
    written(tmp_path / "a" / "optimizer.bin", "o")
    assert hashes_of(tmp_path / "a") == shards
    assert hashes_of(tmp_path / "a" / "optimizer.bin").keys() == {"optimizer.bin"}
    adapter = written(tmp_path / "b" / "adapter_model.bin", "b")
    (tmp_path / "b" / "adapter_config.json").write_text("{}")
    assert hashes_of(tmp_path / "b") == {"adapter_model.bin": adapter}
    assert hashes_of(tmp_path / "nothing") == hashes_of(tmp_path) == {}


def test_each_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread that was begun early, or whoever asks first."""
    digest = written(tmp_path / "model.safetensors", "x")
    hashes.begin([tmp_path, tmp_path / "nothing"])
    assert hashes_of(tmp_path) == {"model.safetensors": digest}
    with monkeypatch.context() as context:
        context.setattr(hashlib, "sha256", None)
        assert hashes_of(tmp_path) == {"model.safetensors": digest}


def test_a_file_that_changes_meanwhile_has_none(tmp_path: Path) -> None:
    """Until another command begins with it."""
    written(tmp_path / "model.safetensors", "x")
    hashes.begin([tmp_path])
    digest = written(tmp_path / "model.safetensors", "yy")
    assert hashes_of(tmp_path) == {}
    hashes.begin([tmp_path])
    assert hashes_of(tmp_path) == {"model.safetensors": digest}


def test_the_hubs_cache_knows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files lie there under their hash, which is taken as it is."""
    digest = written(tmp_path / "blobs" / "file", "x")
    (tmp_path / "blobs" / "file").rename(tmp_path / "blobs" / digest)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(tmp_path / "blobs" / digest)
    monkeypatch.setattr(hashlib, "sha256", None)
    assert hashes_of(tmp_path / "snapshot") == {"model.safetensors": digest}
