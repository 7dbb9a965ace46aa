"""A fusion that goes on: from checkpoints of its own plan and models alone, again in one process; what it leaves."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from fusionlab import FusionData, FusionModule
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.fusion import Heads
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from tests.commands.small import vit
from tests.fusion.test_module import apart, trainer
from tests.parts import one_in

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fusion(seeds: tuple[int, int] = (0, 1), **changes: Any) -> FusionModule:
    models = {name: vit(seed) for name, seed in zip("ab", seeds, strict=True)}
    return FusionModule(models, **{"match": "paper", "polish": PolishOptions(steps=4), "samples": 30, **changes})


@pytest.fixture
def last(tmp_path: Path) -> str:
    """The last checkpoint of a fit."""
    kept = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=2)
    trainer(callbacks=[kept], enable_checkpointing=True).fit(fusion(), datamodule=Digits())
    return str(tmp_path / "last.ckpt")


@pytest.mark.parametrize(
    "other",
    [
        {"seeds": (0, 2)},
        {"polish": PolishOptions(steps=4, learning_rate=0.3)},
        {"match": "weights"},
        {"samples": 20},
        {"base": vit(5)},
    ],
)
def test_other_models_or_another_plan_are_refused(last: str, other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="of other models or by another plan"):
        trainer().fit(fusion(**other), datamodule=Digits(), ckpt_path=last, weights_only=True)


def test_the_same_goes_on_also_in_one_process(last: str) -> None:
    """A module that was fitted before takes a checkpoint, which holds none of what it made."""
    module = fusion()
    trainer().fit(module, datamodule=Digits())
    before = module.kept.model
    trainer().fit(module, datamodule=Digits(), ckpt_path=last, weights_only=True)
    assert apart(module.kept.model, before) < 1e-6


def test_a_checkpoint_of_the_fit_is_no_obstacle_to_a_test(tmp_path: Path) -> None:
    """It holds none of the models that are tested, which a test needs none of."""
    module, run = fusion(), trainer(callbacks=[ModelCheckpoint(tmp_path, save_last=True)], enable_checkpointing=True)
    run.fit(module, datamodule=Digits())
    (plain,) = run.test(module, datamodule=Digits(), verbose=False)
    run.save_checkpoint(tmp_path / "after.ckpt")
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)["state_dict"]
    assert not any(name.startswith("_tested") for name in saved)
    for name in ("last.ckpt", "after.ckpt"):
        path = str(tmp_path / name)
        assert run.test(module, datamodule=Digits(), ckpt_path=path, weights_only=True, verbose=False) == [plain]


def test_a_seed_is_that_of_presets_that_name_none() -> None:
    named = {"learned": {"steps": 2}, "own": {"preset": "learned", "seed": 3}}
    plan = fusion(match=named, seed=7).plan
    assert {name: one.refine and one.refine.seed for name, one in plan.matchings.items()} == {"learned": 7, "own": 3}
    assert fusion(match="learned", seed=7).plan.matchings["learned"].refine.seed == 7  # type: ignore[union-attr]
    given = fusion(match=recipe("learned", seed=2), seed=7).plan.matchings["matched"]
    assert given.refine is not None
    assert given.refine.seed == 2


@pytest.mark.parametrize("heads", one_in(2, ["own", "merged", "union"]))
def test_testing_leaves_the_models_in_their_types(heads: Heads) -> None:
    """A Trainer in double precision converts what it tests."""
    models = {name: vit(seed) for seed, name in enumerate("ab")}
    for model in models.values():
        model.config.id2label = {label: str(label) for label in range(10)}
    data = Digits() if heads != "own" else FusionData([Digits(), Digits()])
    module = FusionModule(models, match="weights", heads=heads)
    run = trainer(precision="64-true")
    for _ in range(2):
        run.fit(module, datamodule=data)
        run.test(module, datamodule=data, verbose=False)
        for model in (*models.values(), module.kept.model):
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert module.results.rows
