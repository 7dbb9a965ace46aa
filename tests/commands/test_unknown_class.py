"""Models of a class that transformers does not have are fused as they come, and the report says what was not tried."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.commands.conftest import Command


def unknown(folder: Path, seed: int, **more: Tensor) -> Path:
    """A folder of a model type of nobody's."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "known-to-nobody", "architectures": ["Nobody"]}))
    draw = torch.Generator().manual_seed(seed)
    state = {"up.weight": torch.randn(6, 4, generator=draw), "up.bias": torch.randn(6, generator=draw)}
    save_file(state | more, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_nothing_is_matched(tmp_path: Path, command: Command) -> None:
    """The mean of equal names and shapes, whatever the size, and a sentence in the report."""
    a, b = (unknown(tmp_path / name, seed) for seed, name in enumerate("ab"))
    outcome = command("fuse", "--ckpts", a, b, "--match", "none", "--weights", 1, 3, "--output", tmp_path / "fused")
    assert (outcome.code, outcome.err) == (0, "")
    told = "No symmetry is known of models of type 'known-to-nobody', which transformers does not have, so matching was"
    assert told in " ".join(outcome.out.split())
    report = (tmp_path / "fused" / "report.html").read_text()
    assert "matching was not tried" in report
    assert "cannot be matched as files" in report
    assert not any(word in report.lower() for word in ("by learning", "learned matching", "match them by"))
    first, second, found = (load_file(f / "model.safetensors") for f in (a, b, tmp_path / "fused" / "merged"))
    assert found.keys() == first.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, 0.25 * first[name] + 0.75 * second[name], rtol=1e-6, atol=1e-6)


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, command: Command) -> None:
    """A matching with the way on, and names that differ by name; nothing is written."""
    a, b = (unknown(tmp_path / name, seed) for seed, name in enumerate("ab"))
    outcome = command("fuse", "--ckpts", a, b, "--match", "paper", "--output", tmp_path / "out")
    assert (outcome.code, "no symmetry of it is known; expected --match none" in outcome.err) == (2, True)
    c = unknown(tmp_path / "c", 2, more=torch.zeros(2))
    outcome = command("fuse", "--ckpts", a, c, "--match", "none", "--output", tmp_path / "out")
    assert (outcome.code, "has the parameter 'more', which" in outcome.err) == (2, True)
    assert not (tmp_path / "out").exists()
