"""A search of a merge's settings under a fit: trials are scored on validation data, the best makes the merge kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.evaluation.task_scores import score_of
from fusionlab.fusion import Fuser, FusionModule, FusionPlan, TaskModels, TestSet
from fusionlab.fusion.searching import Rule, refuse_journal_of_several
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.merging import merge_states
from fusionlab.models import with_state
from fusionlab.search import SearchOptions
from fusionlab.stages import run
from tests.commands.small import vit

pytest.importorskip("optuna")


def batch(seed: int, count: int = 24, labels: int = 10) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=draw)
    return {"pixel_values": pixels, "labels": torch.randint(labels, (count,), generator=draw)}


@dataclass
class Drawn(LightningDataModule):
    """Random images, in training and for validation."""

    seed: int = 0
    labels: int = 10
    name: str = "drawn"

    def __post_init__(self) -> None:
        super().__init__()

    def _loader(self, seed: int) -> DataLoader[Any]:
        drawn = batch(seed, labels=self.labels)
        rows = [dict(zip(drawn, row, strict=True)) for row in zip(*drawn.values(), strict=True)]
        return DataLoader(rows, batch_size=10)  # type: ignore[arg-type]

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.seed)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.seed + 1)


def test_the_merge_that_is_kept_has_the_settings_that_score_best() -> None:
    """On the validation data, as the model's own score is computed without a Trainer; unmatched and matched alike."""
    models = {name: vit(seed) for seed, name in enumerate("ab")}
    search = SearchOptions(trials=3, metric="loss", over={"weights": None})
    plan = FusionPlan({"paper": recipe("paper")}, search=search)
    inputs = Inputs.of([Drawn()], 2)
    fused = run(Fuser(models, plan, inputs).fuse())
    assert fused.search is not None
    assert fused.kept is not None
    assert (fused.kept.method, fused.kept.matching) == ("simple, searched", "paper")
    assert [c.method for c in fused.candidates if c.method.startswith("simple")] == ["simple", "simple"] + [
        "simple, searched"
    ] * 2
    twins = [twin.state_dict() for twin in fused.matched["paper"].twins]
    validation = batch(1)
    for trial in fused.search.trials:
        merged = with_state(models["a"], merge_states(twins, weights=trial.settings.weights))
        loss = torch.nn.functional.cross_entropy(merged(validation["pixel_values"]).logits, validation["labels"])
        assert trial.score == pytest.approx(-loss.item(), rel=1e-4)
    best = fused.search.best
    assert best.score == max(trial.score for trial in fused.search.trials)
    expected = merge_states(twins, weights=best.settings.weights)
    kept = fused.kept.model.state_dict()
    assert all(torch.allclose(kept[name], expected[name]) for name in kept)
    assert "simple: weights" in fused.search.told


def test_tasks_with_heads_of_their_own_are_scored_each_on_its_own_data() -> None:
    """The score is the mean over tasks of the share of what the end model has."""
    models = {"ten": vit(0), "four": vit(1, num_labels=4)}
    search = SearchOptions(trials=2)
    plan = FusionPlan(methods={"task_arithmetic": {}}, heads="own", search=search)
    data = [Drawn(name="ten"), Drawn(2, 4, "four")]
    fused = run(Fuser(models, plan, Inputs.of(data, 2), base=vit(5)).fuse())
    assert fused.search is not None
    assert fused.kept is not None
    assert isinstance(fused.kept.model, TaskModels)
    own = [score_of(model, [one.val_dataloader()]) for model, one in zip(models.values(), data, strict=True)]
    reached = [score_of(model, [one.val_dataloader()]) for model, one in zip(fused.kept.model.tasks, data, strict=True)]
    assert min(own) > 0
    best = fused.search.best
    assert list(best.scores.values()) == pytest.approx(reached)
    assert best.score == pytest.approx(sum(r / o for r, o in zip(reached, own, strict=True)) / 2)


def test_a_search_without_validation_data_is_refused() -> None:
    models = {name: vit(seed) for seed, name in enumerate("ab")}
    inputs = Inputs.from_batches([batch(0)], 2)
    with pytest.raises(InputError, match=r"search chooses by scores on validation data, and there is none"):
        run(Fuser(models, FusionPlan(search=SearchOptions(trials=1)), inputs).fuse())


def test_the_rule_of_a_score() -> None:
    """Shares of the best end model where all metrics are fractions; losses count with the other sign."""
    sets = [TestSet("a"), TestSet("b")]
    ends = [
        {"a": {"loss": 1.0, "accuracy": 0.5}, "b": {"loss": 2.0, "accuracy": 0.8}},
        {"a": {"loss": 3.0, "accuracy": 0.4}},
    ]
    merge = {"a": {"loss": 2.0, "accuracy": 0.25}, "b": {"loss": 4.0, "accuracy": 0.8}}
    assert Rule(sets, ends, None).score(merge) == pytest.approx((0.5 + 1) / 2)
    assert Rule(sets, ends, "loss").score(merge) == pytest.approx(-3)
    nothing = [{"a": {"loss": 1.0, "accuracy": 0.0}, "b": {"loss": 1.0, "accuracy": 0.5}}]
    assert Rule(sets, nothing, None).score(merge) == pytest.approx((0.25 + 0.8) / 2)
    with pytest.raises(InputError, match="search metric is 'f1'; expected one that a has: loss, accuracy"):
        Rule(sets, ends, "f1")


def test_searches_that_merge_other_things_share_no_trials_of_a_journal(tmp_path: Path) -> None:
    """Another matching, another base model and other validation data are searched anew; the same search goes on."""
    models = {name: vit(seed) for seed, name in enumerate("ab")}
    journal = tmp_path / "journal"
    search = SearchOptions(trials=2, metric="loss", journal=str(journal))

    def grown(base: int = 5, seed: int = 0, **matchings: Any) -> bool:
        """Whether a search writes trials."""
        before = journal.stat().st_size if journal.exists() else 0
        plan = FusionPlan(matchings, {"task_arithmetic": {}}, search=search)
        run(Fuser(models, plan, Inputs.of([Drawn(seed)], 2), base=vit(base)).fuse())
        return journal.stat().st_size > before

    assert grown()
    assert not grown()
    assert grown(found=recipe("weights"))
    assert not grown(found=recipe("weights"))
    assert grown(base=6)
    assert grown(seed=1)


def test_what_a_search_cannot_do_is_refused_before_any_work(tmp_path: Path) -> None:
    """When the fusion is made, where the data are known then; an unreadable journal stays as it is."""
    models = {name: vit(seed) for seed, name in enumerate("ab")}
    inputs = Inputs.of([Drawn()], 2)
    with pytest.raises(InputError, match="search metric is 'f1'; expected one that drawn has: loss, accuracy"):
        Fuser(models, FusionPlan(search=SearchOptions(metric="f1")), inputs)
    notes = tmp_path / "notes"
    notes.write_text("not a journal\n")
    with pytest.raises(InputError, match="notes of a search cannot be read or written"):
        Fuser(models, FusionPlan(search=SearchOptions(journal=str(notes))), inputs)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert notes.read_text() == "not a journal\n"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_journal_goes_with_one_process_and_no_checkpoint(tmp_path: Path) -> None:
    """Each would go on with the search in its own way."""
    models: dict[str, Any] = {name: vit(seed) for seed, name in enumerate("ab")}
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    search = SearchOptions(trials=1, journal=str(tmp_path / "journal"))
    checkpointing = ModelCheckpoint(tmp_path, save_last=True)
    trainer = Trainer(accelerator="cpu", devices=1, callbacks=[checkpointing], **quiet)
    trainer.fit(FusionModule(models, "none", search=replace(search, journal=None)), datamodule=Drawn())
    module = FusionModule(models, "none", search=search)
    with pytest.raises(InputError, match="the fit goes on from a checkpoint, which holds the trials too"):
        Trainer(accelerator="cpu", enable_checkpointing=False, **quiet).fit(
            module, datamodule=Drawn(), ckpt_path=checkpointing.last_model_path, weights_only=True
        )
    assert not (tmp_path / "journal").exists()


def test_a_journal_of_several_processes_is_refused() -> None:
    with pytest.raises(InputError, match="which one process writes, and there are 2; expected one device"):
        refuse_journal_of_several(SearchOptions(journal="journal"), 2)
    refuse_journal_of_several(SearchOptions(), 2)
    refuse_journal_of_several(SearchOptions(journal="journal"), 1)
