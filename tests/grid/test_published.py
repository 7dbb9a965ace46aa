"""The published protocol: its faults, repeated to the last bit, against the same worked out directly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score

from fusionlab.data import Digits
from fusionlab.forward import logits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.grid.design import Cell
from fusionlab.grid.published import PublishedFuser
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.merging import merge_states
from fusionlab.stages import run
from fusionlab.statistics import basis_of, store
from tests.commands.small import bert, vit
from tests.grid.toys import BOTH, berts, grid, runner, value, vits


def test_published_regmean_of_text_is_the_plain_average(tmp_path: Path) -> None:
    """To the last bit, matched or not; under the corrected protocol it is not, and for images it never is."""
    ends = berts(tmp_path)
    for protocol, same in (("published", True), ("corrected", False)):
        finished = list(runner(grid(ends, protocol=protocol, methods=BOTH), tmp_path / protocol).run())
        for matching in ("none", "paper"):
            losses = [
                value(finished, Cell(("a", "b"), method, matching, 0), "a", "loss") for method in ("simple", "regmean")
            ]
            assert (losses[0] == losses[1]) is same
    two = dict(list(vits(tmp_path).items())[:2])
    images = list(runner(grid(two, protocol="published", methods=BOTH), tmp_path / "images").run())
    pair = [Cell(("a", "b"), method, "none", 0) for method in ("simple", "regmean")]
    assert value(images, pair[0], "digits", "loss") != value(images, pair[1], "digits", "loss")


def test_a_plain_average_gathers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass over the data for Gram matrices that never reach the merge."""

    def gather(*arguments: Any, **keywords: Any) -> Any:
        raise AssertionError("nothing is to be gathered")

    monkeypatch.setattr(store, "gathered", gather)
    given = grid(berts(tmp_path), protocol="published", methods={"regmean": {}})
    assert not [done.error for done in runner(given, tmp_path / "out").run() if done.error]
    assert not (tmp_path / "out" / "statistics").exists()


def test_published_fisher_is_that_of_the_unmatched_models() -> None:
    """The merge of twins is weighted with the end models' Fisher information, name by name, as it stands."""
    models = {"a": vit(0), "b": vit(1)}
    inputs = Inputs.of([Digits(), Digits()], 2, 30)
    made = {}
    for kind in (Fuser, PublishedFuser):
        fuser = kind(models, FusionPlan({"paper": recipe("paper")}, {"fisher": {}}), inputs)
        made[kind is Fuser] = run(fuser.merge("fisher", "paper")).model.state_dict()
        twins = run(fuser.match("paper")).twins
        stale = [run(fuser.store.of(i, model, ["fisher"])) for i, model in enumerate(fuser.end_models)]
        in_twin = [
            {"fisher": replace(found["fisher"], basis=basis_of(twin.state_dict()))}
            for found, twin in zip(stale, twins, strict=True)
        ]
        states = [twin.state_dict() for twin in twins]
        wanted = merge_states(states, "fisher", fuser.weights, blueprint=fuser.blueprint, statistics=in_twin)
    difference = max(float((made[False][name] - wanted[name]).abs().max()) for name in wanted)
    corrected = max(float((made[True][name] - wanted[name]).abs().max()) for name in wanted)
    assert difference == 0
    assert corrected > 1e-3


def test_published_multilabel_scores_follow_the_threshold(tmp_path: Path) -> None:
    """Micro F1 of labels whose logit is at least 0.5, or 0 in the corrected protocol, as scikit-learn has it."""
    ends = berts(tmp_path, task="multilabel")
    found, labels = [], []
    for batch in ends["a"].data.test_dataloader():
        with torch.no_grad():
            found.append(logits(bert(0), batch))
        labels.append(batch["labels"])
    wanted = {
        protocol: f1_score(torch.cat(labels), torch.cat(found) >= least, average="micro")
        for protocol, least in (("published", 0.5), ("corrected", 0.0))
    }
    assert wanted["published"] != wanted["corrected"]
    for protocol, score in wanted.items():
        finished = list(runner(grid(ends, protocol=protocol), tmp_path / protocol).run())
        assert value(finished, Cell(("a",), "end model", "-", 0), "a", "micro_f1") == pytest.approx(score)
