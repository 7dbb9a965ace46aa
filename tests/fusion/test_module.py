"""FusionModule: ``trainer.fit`` matches and merges, ``trainer.test`` measures; all as the Python calls do."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fusionlab
from fusionlab import FusionModule, stages
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from tests.commands.small import digit_scores, vit
from tests.parts import one_in
from tests.together import free_port, run_together

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


def test_a_plan_without_data_has_an_empty_fit() -> None:
    """Whatever the Trainer is told about epochs, and whether or not there are data."""
    for data in (None, Digits()):
        watched = Watched()
        module = FusionModule([vit(0), vit(1)], recipe("paper"))
        trainer(callbacks=[watched], max_epochs=-1).fit(module, datamodule=data)
        assert watched.seen == ["end"]
        assert not watched.started
        assert module.kept.matching == "matched"


class Watched(Callback):
    """Which stages a Trainer went through, with how many batches, and when the fit ended."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.last: Any = None
        self.started = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        stage = pl_module.stage
        if stage is not self.last:
            self.seen.append([stage.label, 0])
        self.last = stage
        self.seen[-1][1] += 1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.started = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seen.append("end")


# What looks at data three times over: Fisher information of both models as they come and as they are matched, learned
# matching, and polish.
WHOLE: dict[str, Any] = {
    "match": {"learned": recipe("learned", steps=6, every=2, batch_size=16)},
    "methods": {"simple": {}, "fisher": {}},
    "polish": PolishOptions(steps=4, batch_size=16),
    "samples": 64,
}


def test_stages_are_epochs_of_one_fit(tmp_path: Path) -> None:
    """Learning, gathering in every basis, polishing; then the merges of the Python calls; all curves in one log."""
    watched, logger = Watched(), TensorBoardLogger(tmp_path, name="", version="")
    module = FusionModule({"a": vit(0), "b": vit(1)}, **WHOLE)
    run = trainer(callbacks=[watched], logger=logger, log_every_n_steps=1, max_epochs=1, max_steps=1)
    run.fit(module, datamodule=Digits())
    assert (run.max_epochs, run.max_steps) == (1, 1), "the Trainer is as it was"
    batches = list(Inputs.of([Digits()], 2, 64).shared)
    gathering = [f"gathering fisher of model {number}" for number in (1, 2, 1, 2)]
    assert watched.seen == [
        ["learned matching", 6],
        *([label, len(batches)] for label in gathering),
        ["polishing simple", 4],
        ["polishing simple, learned", 4],
        "end",
    ]
    inputs = Inputs.of([Digits()], 2, 64)
    plan = FusionPlan(module.plan.matchings, module.plan.methods, polish=module.plan.polish)
    wanted = stages.run(Fuser({"a": vit(0), "b": vit(1)}, plan, inputs).fuse())
    assert [(c.method, c.matching) for c in module.candidates] == [(c.method, c.matching) for c in wanted.candidates]
    for found, expected in zip(module.candidates, wanted.candidates, strict=True):
        assert apart(found.model, expected.model) < 1e-6
    assert module.kept.method == "simple, polished"
    log = EventAccumulator(str(tmp_path)).Reload()
    for label, steps in (("learned matching", 6), ("polishing simple", 4), ("polishing simple, learned", 4)):
        assert len(log.Scalars(f"{label}/loss")) == steps


@pytest.fixture(scope="module")
def whole() -> FusionModule:
    """A fusion of two ViTs that nothing cut."""
    found = FusionModule({"a": vit(0), "b": vit(1)}, **WHOLE)
    trainer().fit(found, datamodule=Digits())
    return found


@pytest.mark.parametrize("batches", one_in(3, [8, 4, 12]))
def test_a_fit_that_was_cut_goes_on(tmp_path: Path, whole: FusionModule, batches: int) -> None:
    """In the middle of learning, of gathering and of polishing: the same merges as of a fit that was not cut."""

    class Cut(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.fit_loop.epoch_loop.total_batch_idx + 1 == batches:
                raise KeyboardInterrupt

    def keep() -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1, save_on_train_epoch_end=False)

    cut = FusionModule({"a": vit(0), "b": vit(1)}, **WHOLE)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trainer(callbacks=[keep(), Cut()], enable_checkpointing=True).fit(cut, datamodule=Digits())
    assert cut.fused is None
    watched, resumed = Watched(), FusionModule({"a": vit(0), "b": vit(1)}, **WHOLE)
    again = trainer(callbacks=[keep(), watched], enable_checkpointing=True)
    again.fit(resumed, datamodule=Digits(), ckpt_path="last", weights_only=True)
    assert sum(seen[1] for seen in watched.seen[:-1]) < 22
    for found, expected in zip(resumed.candidates, whole.candidates, strict=True):
        assert apart(found.model, expected.model) < 1e-6


def test_a_fit_that_does_not_reach_its_end_is_one_sentence() -> None:
    """Stopped in the middle of a stage, or told to go through no batches."""

    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            trainer.should_stop = True

    module = FusionModule([vit(0), vit(1)], **WHOLE)
    with pytest.raises(InputError, match=r"stopped in the middle of 'learned matching'; .* goes on: `ckpt_path`"):
        trainer(callbacks=[Stop()]).fit(module, datamodule=Digits())
    with pytest.raises(InputError, match="limit_train_batches is 0; expected the Trainer to go through batches"):
        trainer(limit_train_batches=0).fit(FusionModule([vit(0), vit(1)], **WHOLE), datamodule=Digits())


def test_a_module_may_be_fitted_again() -> None:
    """With other data, after a fit that ended and one that failed, which left the Trainer and the models alone."""

    class Fail(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            raise RuntimeError("a fault")

    module = FusionModule({"a": vit(0), "b": vit(1)}, "none", {"regmean": {}}, samples=40)
    failing = trainer(callbacks=[Fail()], precision="64-true")
    with pytest.raises(RuntimeError, match="a fault"):
        failing.fit(module, datamodule=Digits())
    assert (failing.max_epochs, failing.max_steps) == (3, -1)
    assert {p.dtype for p in module.models["a"].parameters()} == {torch.float32}
    found = []
    for classes in ([0, 1], [2, 3], [0, 1]):
        trainer().fit(module, datamodule=Digits(classes=classes))
        found.append(module.kept.model)
    assert apart(found[0], found[1]) > 1e-3
    assert apart(found[0], found[2]) < 1e-6
    wanted = fusionlab.merge([vit(0), vit(1)], "regmean", data=Inputs.of([Digits(classes=[0, 1])], 2, 40))
    assert apart(found[2], wanted) < 1e-6
    run = trainer()
    for classes, count in (([0, 1], 1), ([2], 2)):
        data = Digits(classes=classes)
        data.setup("test")
        run.test(module, [data.test_dataloader()] * count, verbose=False)
        assert len({row.data_set for row in module.rows}) == count


def test_options_of_the_trainer() -> None:
    """One batch of each stage by ``fast_dev_run``; another precision; batches in place of a data module."""
    watched = Watched()
    module = FusionModule([vit(0), vit(1)], **WHOLE)
    trainer(callbacks=[watched], fast_dev_run=True, precision="bf16-mixed").fit(module, datamodule=Digits())
    assert [seen[1] for seen in watched.seen[:-1]] == [1] * 7
    assert module.kept.method == "simple, polished"
    double = FusionModule([vit(0), vit(1)], **WHOLE)
    given = list(Inputs.of([Digits()], 2, 64).shared)
    trainer(precision="64-true").fit(double, given)
    assert {p.dtype for p in double.kept.model.parameters()} == {torch.float32}
    single = FusionModule([vit(0), vit(1)], **WHOLE)
    trainer().fit(single, given)
    assert 0 < apart(single.kept.model, double.kept.model) < 1e-2
    with pytest.raises(InputError, match="precision is 'bf16-true', which rounds the models"):
        trainer(precision="bf16-true").fit(FusionModule([vit(0), vit(1)], **WHOLE), given)


def fuse_as_one_of(rank: int, count: int, port: int, place: Path) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), NODE_RANK="0", LOCAL_RANK=str(rank)
    )
    # Of each process its own, if any of it were used.
    torch.manual_seed(rank)
    module = FusionModule([vit(0), vit(1)], **WHOLE)
    run = trainer(devices=count, strategy="ddp", precision="64-true")
    run.fit(module, datamodule=Digits())
    run.test(module, datamodule=Digits(), verbose=False)
    rows = [(row.method, row.matching, row.metric, row.value) for row in module.rows]
    states = [candidate.model.state_dict() for candidate in module.candidates]
    told = {"rows": rows, "states": states, "measured": len(module.measured)}
    torch.save(told | {"team": module.fuser.matchings.place.team.size}, place / f"{rank}.pt")


def test_two_processes_fuse_as_one(tmp_path: Path) -> None:
    """Learning, Fisher information, polish and scores on two gloo processes: those of one, to rounding, on both.

    Attention is computed in float32 whatever the Trainer is told, and AdamW makes much of small differences.
    """
    module = FusionModule([vit(0), vit(1)], **WHOLE)
    run = trainer(precision="64-true")
    run.fit(module, datamodule=Digits())
    run.test(module, datamodule=Digits(), verbose=False)
    wanted = [(row.method, row.matching, row.metric, pytest.approx(row.value, abs=1e-6)) for row in module.rows]
    assert run_together(fuse_as_one_of, free_port(), tmp_path) == [0, 0]
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["rows"] == wanted
        assert found["team"] == 2, "matching by weights is shared too"
        assert found["measured"] == len(module.measured) > 0
        for state, candidate in zip(found["states"], module.candidates, strict=True):
            for name, value in candidate.model.state_dict().items():
                torch.testing.assert_close(state[name], value, rtol=0, atol=2e-4)


def test_names_and_paths(tmp_path: Path) -> None:
    """Checkpoints are called by what tells them apart; test sets by the order of the loaders."""
    for folder, seed in (("x/best", 0), ("y/best", 1)):
        fusionlab.save(vit(seed), tmp_path / folder)
    module = FusionModule([tmp_path / "x" / "best", str(tmp_path / "y" / "best")], "none")
    assert list(module.models) == ["x", "y"]
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
    with pytest.raises(InputError, match="has no option 'wieghts'"):
        FusionModule(["no/such/model"], wieghts=[1, 2])
    with pytest.raises(InputError, match="matching preset 'nope' does not exist"):
        FusionModule(models, "nope")
    with pytest.raises(InputError, match="1 end model was given"):
        FusionModule(models[:1])
    module = FusionModule(models, test_sets=[TestSet("x")])
    with pytest.raises(InputError, match=r"expected trainer\.fit first"):
        trainer().test(module, datamodule=Digits(), verbose=False)
    with pytest.raises(InputError, match=r"nothing was fused yet; expected trainer\.fit first"):
        _ = module.kept
