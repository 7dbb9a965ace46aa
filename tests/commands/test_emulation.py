"""Commands that compute in bfloat16 on a processor without it say so."""

import platform
from pathlib import Path

import pytest
import torch

from tests.commands.conftest import Command

TOLD = "precision is bf16-mixed, and this processor has no instructions for bfloat16"


@pytest.mark.parametrize("native", [True, False], ids=["native", "emulated"])
def test_commands_tell_it_once(
    native: bool, ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With options of their own as with Lightning's."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native)
    a, b = ckpts / "a", ckpts / "b"
    fit = ("fit", "--config", "vit_digits.yaml", "--trainer.fast_dev_run", "true", "--trainer.callbacks", "null")
    for argv in (
        ("merge", a, b, "--output", tmp_path / "m", "--accelerator", "cpu", "--precision", "bf16-mixed"),
        (*fit, "--trainer.accelerator", "cpu", "--trainer.precision", "bf16-mixed"),
    ):
        result = command(*argv)
        assert result.code == 0, result.err
        assert " ".join(result.err.split()).count(TOLD) == (0 if native else 1), argv
