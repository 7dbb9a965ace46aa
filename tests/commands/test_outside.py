"""What Lightning files hold beside their models: kept in files, left out of folders, and said once."""

from pathlib import Path

import pytest
import torch

from fusionlab import checkpoints
from tests.checkpoints.small_models import vit
from tests.commands.conftest import Command


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of modules with a model, a head of their own and a count."""
    paths = [tmp_path / f"{name}.ckpt" for name in "ab"]
    for seed, path in enumerate(paths):
        torch.manual_seed(seed)
        model = vit()
        state = {f"encoder.{name}": tensor + 0.01 * seed for name, tensor in model.state_dict().items()}
        own = {f"head.{name}": torch.randn(3) for name in ("a", "b", "c", "d")} | {"seen": torch.tensor(seed)}
        torch.save({"state_dict": state | own, "fusionlab": checkpoints.describe(model)}, path)
    return paths


@pytest.mark.parametrize("line", [("merge",), ("match", "--anchor"), ("fuse", "--match", "none", "--ckpts")])
def test_what_is_kept_is_said(files: list[Path], tmp_path: Path, command: Command, line: tuple[str, ...]) -> None:
    """The first file's own: three names, and how many more there are; counts are no parameters."""
    first, second = files
    models = (first, "--anchor", second) if line[0] == "match" else (*line[1:], first, second)
    out = tmp_path / ("out" if line[0] == "fuse" else "out.ckpt")
    outcome = command(line[0], *models, "--output", out)
    assert outcome.code == 0
    assert outcome.err == (
        f"{first}: head.a, head.b, head.c and 1 more stand outside of the ViTForImageClassification and are kept as "
        f"they are there, neither merged nor matched.\n"
    )
    written = torch.load(out / "merged.ckpt" if line[0] == "fuse" else out, weights_only=True)["state_dict"]
    kept = torch.load(first, weights_only=True)["state_dict"]
    assert all(torch.equal(written[f"head.{name}"], kept[f"head.{name}"]) for name in "abcd")


def test_what_is_left_out_is_said(files: list[Path], tmp_path: Path, command: Command) -> None:
    archive = torch.load(files[0], weights_only=True)
    for name in "bcd":
        del archive["state_dict"][f"head.{name}"]
    torch.save(archive, files[0])
    outcome = command("merge", *files, "--output", tmp_path / "out")
    assert outcome.code == 0
    assert outcome.err == (
        f"{files[0]}: head.a stands outside of the ViTForImageClassification and is not in the output.\n"
    )
    assert command("merge", *files, "--quiet", "--output", tmp_path / "quiet").err == ""
