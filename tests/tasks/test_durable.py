"""Lightning's checkpoints are whole or not there."""

from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO

from fusionlab.tasks.durable import DurableCheckpointIO


def test_a_failing_write_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing beside it; a URL is Lightning's own affair."""
    path = tmp_path / "deep" / "last.ckpt"
    plugin = DurableCheckpointIO()
    plugin.save_checkpoint({"epoch": 1, "tensor": torch.ones(3)}, path)
    assert plugin.load_checkpoint(path)["epoch"] == 1
    save = torch.save

    def failing(content: object, file: Path) -> None:
        save(content, file)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="No space") as caught:
        plugin.save_checkpoint({"epoch": 2}, path)
    assert caught.value.filename == str(path)
    assert plugin.load_checkpoint(path)["epoch"] == 1
    assert [found.name for found in path.parent.iterdir()] == ["last.ckpt"]
    seen: list[str] = []
    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", lambda self, content, path, storage: seen.append(path))
    plugin.save_checkpoint({}, "s3://bucket/x.ckpt")
    assert seen == ["s3://bucket/x.ckpt"]
