"""`fusionlab merge` writes the weighted mean as an ordinary checkpoint."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fusionlab import checkpoints
from tests.commands.conftest import Command
from tests.commands.small import weights


def mean(first: Tensor, second: Tensor, weight: float) -> np.ndarray:
    """A weighted mean of two tensors, in float64."""
    return weight * first.double().numpy() + (1 - weight) * second.double().numpy()


@pytest.mark.parametrize(("kind", "given", "weight"), [("", [], 0.5), ("timm_", ["1", "3"], 0.25)])
def test_weighted_mean(
    ckpts: Path, tmp_path: Path, command: Command, kind: str, given: list[str], weight: float
) -> None:
    """Every parameter is the weighted mean of the inputs', weights scaled to sum to one; the table tells them."""
    paths = [ckpts / f"{kind}{name}" for name in "ab"]
    option = ["--weights", *given] if given else []
    outcome = command("merge", *paths, "--output", tmp_path / "merged", *option)
    assert (outcome.code, outcome.err) == (0, "")
    first, second, merged = map(weights, (*paths, tmp_path / "merged"))
    assert merged.keys() == first.keys()
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor.numpy(), mean(first[name], second[name], weight), rtol=0, atol=1e-6)
    assert f"{weight:.3f}" in outcome.out
    assert f"{1 - weight:.3f}" in outcome.out


def test_side_files_of_the_first_are_copied(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The preprocessor comes along, byte by byte."""
    assert command("merge", ckpts / "a", ckpts / "b", "--output", tmp_path / "merged").code == 0
    name = "preprocessor_config.json"
    assert (tmp_path / "merged" / name).read_bytes() == (ckpts / "a" / name).read_bytes()


def test_bfloat16_stays(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The mean of bfloat16 checkpoints is the float64 mean rounded once, in bfloat16."""
    paths = [ckpts / "half_a", ckpts / "half_b"]
    assert command("merge", *paths, "--output", tmp_path / "merged", "--weights", "0.3", "0.7").code == 0
    first, second, merged = map(weights, (*paths, tmp_path / "merged"))
    for name, tensor in merged.items():
        assert tensor.dtype == torch.bfloat16
        exact = torch.from_numpy(mean(first[name], second[name], 0.3))
        nearest = exact.to(torch.bfloat16).double()
        # Where the mean lies half way, the sum's own rounding in float32 may decide.
        assert ((tensor.double() - exact).abs() <= (nearest - exact).abs() + 1e-7).all()


def test_lightning_files(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Two .ckpt files become a .ckpt file with the mean in it."""
    paths = [ckpts / f"lightning_{name}.ckpt" for name in "ab"]
    assert command("merge", *paths, "--output", tmp_path / "merged.ckpt").code == 0
    first, second, merged = (checkpoints.load(p).state_dict() for p in (*paths, tmp_path / "merged.ckpt"))
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor.numpy(), mean(first[name], second[name], 0.5), rtol=0, atol=1e-6)


def test_overwrite_replaces_the_whole_folder(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Nothing of the old output is left."""
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "old.txt").write_text("x")
    arguments = ("merge", ckpts / "a", ckpts / "b", "--output", tmp_path / "merged")
    assert command(*arguments, "--overwrite").code == 0
    assert not (tmp_path / "merged" / "old.txt").exists()
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]


@pytest.mark.parametrize(
    ("method", "given", "sentence"),
    [
        ("slerp", "{t: nan}", "t is 'nan'; expected a finite number or null"),
        ("slerp", "{t: .nan}", "t is nan; expected a finite number or null"),
        ("karcher", "{iterations: 1.5}", "iterations is 1.5; expected a whole number"),
        ("[slerp, karcher]", "{slerp: 3}", "hyperparameters of 'slerp' are 3; expected names and values"),
        ("[slerp, karcher]", "{slerp: {t: [1]}}", "t is [1]; expected a finite number or null"),
    ],
)
def test_hyperparameters_of_another_type(
    ckpts: Path, tmp_path: Path, command: Command, method: str, given: str, sentence: str
) -> None:
    """One sentence, exit code 2 and nothing written."""
    out = tmp_path / "merged"
    main = "fuse" if method.startswith("[") else "merge"
    models = ["--ckpts", ckpts / "a", ckpts / "b"] if main == "fuse" else [ckpts / "a", ckpts / "b"]
    outcome = command(main, *models, "--output", out, "--method", method, "--hyperparameters", given)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert not out.exists()
