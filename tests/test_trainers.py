"""Trainers of the project's own passes: what their progress bars say."""

import sys
from collections.abc import Iterator

import pytest
import torch
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.stages import Run, Stage, StagedModule, Stages, result_of, run
from fusionlab.trainers import NamedProgressBar, make_trainer, quiet_trainer


class Counting(Stage[int]):
    """Three batches that are counted."""

    label, steps = "going up", 3

    def __init__(self) -> None:
        self.totals: set[float] = set()

    def begin(self, run: Run) -> None:
        pass

    def batches(self, run: Run) -> Iterator[Tensor]:
        return iter([torch.ones(1)] * 3)

    def step(self, run: Run, batch: Tensor) -> None:
        bar = run.trainer.progress_bar_callback
        assert isinstance(bar, NamedProgressBar)
        self.totals.add(bar.total_train_batches)

    def finish(self, run: Run) -> int:
        return 3

    def pack(self, result: int) -> int:
        return result

    def unpack(self, packed: int) -> int:
        return packed


class Counted(StagedModule):
    def __init__(self, stage: Counting) -> None:
        super().__init__()
        self.counting = stage

    def stages(self) -> Stages[int]:
        return result_of(self.counting)


def test_the_progress_bar_names_the_stage_and_counts_its_batches(capsys, monkeypatch):
    """Whether the Trainer was made with such a bar, or with one of Lightning's own; the first is on standard error."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    stage = Counting()
    assert run(result_of(stage), lambda: make_trainer({"accelerator": "cpu", "devices": 1}, "matching")) == 3
    assert stage.totals == {3}
    shown = capsys.readouterr()
    assert "going up" in shown.err
    assert shown.out == ""
    for bar in (TQDMProgressBar(), RichProgressBar()):
        module = Counted(Counting())
        quiet_trainer(accelerator="cpu", devices=1, enable_progress_bar=True, callbacks=[bar]).fit(module)
        assert module.outcome == 3
        assert module.counting.totals == {3}
        assert "going up" in capsys.readouterr().out


@pytest.mark.parametrize("devices", [1025, 2**63, "1025", str(2**63)])
def test_more_devices_than_any_machine_has_are_refused(devices: int | str) -> None:
    """Before Lightning makes a list of them."""
    with pytest.raises(InputError, match=r"^devices is \d+; expected at most 1,024$"):
        make_trainer({"accelerator": "cpu", "devices": devices}, "")


@pytest.mark.parametrize("strategy", ["fsdp_cpu_offload", "deepspeed_stage_3"])
def test_strategies_that_spread_a_model_are_refused(strategy: str) -> None:
    """Before Lightning asks for a GPU; also where the Trainer was made by somebody else."""
    with pytest.raises(InputError, match=f"^strategy is {strategy}, which spreads the one module .* expected fsdp"):
        make_trainer({"accelerator": "cpu", "devices": 2, "strategy": strategy}, "")
    module, trainer = Counted(Counting()), quiet_trainer(accelerator="cpu", devices=1)
    trainer._accelerator_connector.strategy = FSDPStrategy()
    module.trainer = trainer
    with pytest.raises(InputError, match=r"^strategy is FSDPStrategy, which spreads the one module"):
        module.setup("fit")


def test_a_gpu_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="accelerator names a GPU, and this machine has none; expected --accelerator"):
        make_trainer({"accelerator": "gpu"}, "")
