"""Nets of convolutions through the commands: what is said of BatchNorm, and lines whose points have their own."""

from pathlib import Path

import pytest

import fusionlab
from fusionlab import checkpoints
from fusionlab.data import Digits
from fusionlab.inputs import Inputs
from tests.commands.conftest import Command
from tests.merging.convolutions import resnet

SAID = "statistics of BatchNorm were averaged"


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ResNets for digits, in float32."""
    folder = tmp_path_factory.mktemp("nets")
    for seed, name in enumerate("ab"):
        checkpoints.save(resnet(seed).float(), folder / name)
    return folder


def test_a_merge_without_data_says_that_statistics_are_averaged(nets: Path, tmp_path: Path, command: Command) -> None:
    """With data it measures them, and says nothing."""
    merge = ("merge", nets / "a", nets / "b", "--output")
    outcome = command(*merge, tmp_path / "averaged")
    assert outcome.code == 0
    assert SAID in " ".join(outcome.out.split())
    outcome = command(*merge, tmp_path / "measured", "--probes", "Digits", "--probes.image_size", "16")
    assert outcome.code == 0
    assert SAID not in " ".join(outcome.out.split())
    averaged, measured = (checkpoints.load(tmp_path / name).state_dict() for name in ("averaged", "measured"))
    differ = {name.rpartition(".")[2] for name in averaged if not averaged[name].equal(measured[name])}
    assert differ == {"running_mean", "running_var", "num_batches_tracked"}


def test_fuse_says_it(nets: Path, tmp_path: Path, command: Command) -> None:
    outcome = command("fuse", "--ckpts", nets / "a", nets / "b", "--match", "weights", "--output", tmp_path / "fused")
    assert outcome.code == 0
    assert SAID in " ".join(outcome.out.split())
    assert SAID in (tmp_path / "fused" / "report.html").read_text()


@pytest.mark.parametrize("corrected", [False, True])
def test_points_of_a_barrier_have_their_own_activations(nets: Path, command: Command, corrected: bool) -> None:
    """Measured on training images, corrected if wanted: the numbers of the Python call."""
    line = ("barrier", nets / "a", nets / "b", "--match", "none", "--points", "3", "--data", "Digits")
    small = ("--data.image_size", "16", "--samples", "200", *(("--correct",) if corrected else ()))
    outcome = command(*line, *small)
    assert outcome.code == 0
    models, data = [checkpoints.load(nets / name) for name in "ab"], Digits(image_size=16)
    seen, test = Inputs.of([data], 2, 200), data.test_dataloader()
    assert seen is not None
    wanted = fusionlab.barrier(*models, test, 3, seen.shared, corrected).loss
    assert [f"{loss:.3f}" in outcome.out for loss in wanted] == [True] * 3
    assert f"{fusionlab.barrier(*models, test, 3).loss[1]:.3f}" not in outcome.out
