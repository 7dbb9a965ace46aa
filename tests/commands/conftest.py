"""Checkpoints of every kind, made once, and the command line run inside this process."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.cli import main
from tests.commands.small import bert, timm_vit, vit
from tests.pictures import empty_pictures


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: exit code, standard output without line breaks of tables, standard error."""

    code: int
    out: str
    err: str


__all__ = ["Command", "Outcome", "ckpts", "command", "empty_pictures"]

Command = Callable[..., Outcome]


@pytest.fixture(scope="session")
def ckpts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints that no test changes.

    ``a``, ``b``, ``c`` are ViTs from different seeds (``a`` with a preprocessor), ``half_a`` and ``half_b`` the first
    two in bfloat16, ``middle`` close to the mean of ``a`` and ``b``; ``bert_*``, ``timm_*`` and ``lightning_*.ckpt``
    are the other kinds, in pairs.
    """
    folder = tmp_path_factory.mktemp("checkpoints")
    for seed, name in enumerate("abc"):
        checkpoints.save(vit(seed), folder / name)
    (folder / "a" / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
    middle = vit(0)
    with torch.no_grad():
        for parameter, other in zip(middle.parameters(), vit(1).parameters(), strict=True):
            parameter.lerp_(other, 0.4)
    checkpoints.save(middle, folder / "middle")
    for seed, name in enumerate("ab"):
        checkpoints.save(vit(seed).bfloat16(), folder / f"half_{name}")
        checkpoints.save(bert(seed), folder / f"bert_{name}")
        checkpoints.save(timm_vit(seed), folder / f"timm_{name}")
        state = {f"model.{key}": tensor for key, tensor in vit(seed).state_dict().items()}
        archive = {"state_dict": state, "epoch": 3, "fusionlab": checkpoints.describe(vit(seed))}
        torch.save(archive, folder / f"lightning_{name}.ckpt")
    return folder


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``fusionlab`` with these arguments."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, re.sub(r"\s+", " ", captured.out), captured.err)

    return run
