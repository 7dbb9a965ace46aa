"""FusionModule: ``trainer.fit`` matches and merges, ``trainer.test`` measures; all as the Python calls do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

import fusionlab
from fusionlab import FusionModule
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.fusion import TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from tests.commands.small import digit_scores, vit

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def trainer(**options: Any) -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar"), False
    )
    return Trainer(**{"accelerator": "cpu", "devices": 1, "max_epochs": 3, **quiet, **options})


def apart(first: torch.nn.Module, second: torch.nn.Module) -> float:
    """The largest difference between two models' parameters."""
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def test_fit_matches_and_merges_and_test_measures() -> None:
    """From models to scores: the kept merge is that of the Python call, the scores those of the merge."""
    module = FusionModule({"a": vit(0), "b": vit(1)}, match={"mine": "weights", "none": "none"}, anchor=1)
    run = trainer()
    run.fit(module, datamodule=Digits())
    assert run.max_epochs == 3, "the Trainer is as it was"
    wanted = fusionlab.fuse([vit(0), vit(1)], "weights", anchor=1)
    assert apart(module.kept.model, wanted) < 1e-6
    assert (module.kept.method, module.kept.matching) == ("simple", "mine")
    run.test(module, datamodule=Digits(), verbose=False)
    found = {row.metric: row.value for row in module.results.rows if row.matching == "mine"}
    assert found["accuracy"] == pytest.approx(digit_scores(module.kept.model)["accuracy"])
    assert {row.data_set for row in module.rows} == {"digits"}
    assert module.results.kept == ("simple", "mine")


def test_data_of_the_trainer_is_what_merging_sees() -> None:
    """Its training split, and as many samples of it as are asked for."""
    module = FusionModule([vit(0), vit(1)], "paper", {"regmean": {"alpha": 0.5}}, samples=40)
    trainer().fit(module, datamodule=Digits())
    inputs = Inputs.of([Digits()], 2, 40)
    wanted = fusionlab.fuse([vit(0), vit(1)], "paper", "regmean", data=inputs, alpha=0.5)
    assert apart(module.kept.model, wanted) < 1e-6
    with pytest.raises(InputError, match="gram statistics of each model are needed"):
        trainer().fit(FusionModule([vit(0), vit(1)], "paper", "regmean"))


def test_no_step_is_taken_and_callbacks_are_called() -> None:
    """Whatever the Trainer is told about epochs, and whether or not there are data."""
    called: list[str] = []

    class Watcher(Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            called.append("batch")

        def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            called.append("end")

    for data in (None, Digits()):
        called.clear()
        module = FusionModule([vit(0), vit(1)], recipe("paper"))
        trainer(callbacks=[Watcher()], max_epochs=-1).fit(module, datamodule=data)
        assert called == ["end"]
        assert module.kept.matching == "matched"


def test_names_and_paths(tmp_path: Path) -> None:
    """Checkpoints are called by what tells them apart; test sets by the order of the loaders."""
    for folder, seed in (("x/best", 0), ("y/best", 1)):
        fusionlab.save(vit(seed), tmp_path / folder)
    module = FusionModule([tmp_path / "x" / "best", str(tmp_path / "y" / "best")], "none")
    assert list(module.models) == ["x/best", "y/best"]
    run = trainer()
    run.fit(module)
    assert module.kept.matching == "none"
    digits = Digits()
    digits.setup("test")
    run.test(module, [digits.test_dataloader()] * 2, verbose=False)
    assert {row.data_set for row in module.rows} == {"test", "test 2"}


def test_wrong_use_is_one_sentence() -> None:
    """When the module is made, or before any work."""
    models = [vit(0), vit(1)]
    with pytest.raises(InputError, match="has no option 'wieghts'; expected some of anchor, correct"):
        FusionModule(models, wieghts=[1, 2])
    with pytest.raises(InputError, match="matching preset 'nope' does not exist"):
        FusionModule(models, "nope")
    with pytest.raises(InputError, match="1 end model was given"):
        FusionModule(models[:1])
    module = FusionModule(models, test_sets=[TestSet("x")])
    with pytest.raises(InputError, match=r"expected trainer\.fit first"):
        trainer().test(module, datamodule=Digits(), verbose=False)
    with pytest.raises(InputError, match=r"nothing was fused yet; expected trainer\.fit first"):
        _ = module.kept


def test_several_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would match and merge."""
    run = trainer()
    monkeypatch.setattr(Trainer, "world_size", 2)
    with pytest.raises(InputError, match="devices is 2; expected 1 to fuse"):
        run.fit(FusionModule([vit(0), vit(1)]))
