"""bfloat16 on the device at hand: whether it has instructions for it, and what is told where it has none."""

import platform

import pytest
import torch

from fusionlab.bfloat16 import emulation_told, has_bfloat16
from fusionlab.trainers import quiet_trainer


@pytest.fixture(params=[True, False], ids=["native", "emulated"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A processor of x86 with bfloat16 or without."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: request.param)
    return bool(request.param)


def test_the_processor_is_asked(native: bool) -> None:
    assert has_bfloat16(torch.device("cpu")) is native
    assert not has_bfloat16(torch.device("meta"))


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_only_bfloat16_without_instructions_is_told(native: bool, precision: str) -> None:
    told = emulation_told(quiet_trainer(accelerator="cpu", devices=1, precision=precision))
    if native or precision != "bf16-mixed":
        assert told is None
    else:
        assert told is not None
        assert told.startswith("precision is bf16-mixed, and this processor has no instructions for bfloat16")


def test_nothing_is_told_of_processors_that_torch_says_nothing_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert emulation_told(quiet_trainer(accelerator="cpu", devices=1, precision="bf16-mixed")) is None
