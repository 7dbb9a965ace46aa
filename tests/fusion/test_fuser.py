"""Fuser matches and merges; CandidateTest under Lightning's Trainer measures every candidate."""

import time
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from transformers import ResNetConfig, ResNetForImageClassification

import fusionlab
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.forward import logits
from fusionlab.fusion import CandidateTest, Fused, Fuser, FusionPlan, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.stages import run
from fusionlab.symmetry import SymmetryError
from tests.commands.small import bert, random_logits, vit

Batch = dict[str, Tensor]
SETS = (TestSet("near"), TestSet("far", "out"))
MATCHINGS = {"paper": recipe("paper"), "weights": recipe("weights")}


def trainer() -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar"), False
    )
    return Trainer(accelerator="cpu", devices=1, max_epochs=1, **quiet)


def samples(count: int, seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    return [{"pixel_values": image, "labels": label} for image, label in zip(pixels, labels, strict=True)]


def loader(count: int, seed: int) -> DataLoader:
    """Batches of 8, the last one smaller."""
    return DataLoader(samples(count, seed), batch_size=8)  # type: ignore[arg-type]


def expected(model: nn.Module, count: int, seed: int) -> dict[str, float]:
    pixels, labels = (torch.stack([s[name] for s in samples(count, seed)]) for name in ("pixel_values", "labels"))
    with torch.no_grad():
        found = logits(model.eval(), {"pixel_values": pixels})
    accuracy = float((found.argmax(-1) == labels).float().mean())
    return {"loss": float(functional.cross_entropy(found, labels)), "accuracy": accuracy}


def same(first: nn.Module, second: nn.Module) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*configure_optimizers.*",
    "ignore:Total length of.*",
    "ignore:.*does not have many workers.*",
    "ignore:.*LeafSpec.*",
)


@pytest.fixture(scope="module")
def fused() -> Fused:
    """Three models, two matchings, weights and another anchor."""
    models = {name: vit(seed) for seed, name in enumerate(("a", "b", "c"))}
    return run(Fuser(models, FusionPlan(MATCHINGS, weights=[1, 2, 3], anchor=1)).fuse())


@pytest.fixture(scope="module")
def tested(fused: Fused) -> CandidateTest:
    """All of it, tested on two loaders."""
    module = CandidateTest(fused.candidates, SETS)
    trainer().test(module, [loader(20, 0), loader(11, 1)], verbose=False)
    return module


def test_every_score_is_logged_by_set_candidate_and_metric(tested: CandidateTest) -> None:
    """Where Lightning's loggers and callbacks find it."""
    logged = {name.split("/dataloader_idx")[0]: float(value) for name, value in tested.trainer.callback_metrics.items()}
    assert len(logged) == len(tested.rows)
    for row in tested.rows:
        label = "+".join(row.models) if row.method == "end model" else f"{row.method}/{row.matching}"
        assert logged[f"{row.data_set}/{label}/{row.metric}"] == pytest.approx(row.value, rel=1e-6)


def test_candidates_are_those_of_the_python_calls(fused: Fused) -> None:
    """End models as they are, the unmatched merge, and one merge for each matching, bit by bit."""
    models = [vit(seed) for seed in range(3)]
    wanted = {
        (("a",), "end model", "-"): models[0],
        (("b",), "end model", "-"): models[1],
        (("c",), "end model", "-"): models[2],
        (("a", "b", "c"), "simple", "none"): fusionlab.merge(models, weights=[1, 2, 3]),
        (("a", "b", "c"), "simple", "paper"): fusionlab.fuse(models, "paper", anchor=1, weights=[1, 2, 3]),
        (("a", "b", "c"), "simple", "weights"): fusionlab.fuse(models, "weights", anchor=1, weights=[1, 2, 3]),
    }
    assert [(c.models, c.method, c.matching) for c in fused.candidates] == list(wanted)
    for candidate, model in zip(fused.candidates, wanted.values(), strict=True):
        assert same(candidate.model, model)


def test_rows_equal_direct_evaluation(tested: CandidateTest) -> None:
    """Every candidate on every loader: the mean over samples, not over batches."""
    assert len(tested.rows) == 2 * 6 * 2
    for name, domain, count, seed in (("near", "in", 20, 0), ("far", "out", 11, 1)):
        for candidate in tested.candidates:
            found = {
                row.metric: row.value
                for row in tested.rows
                if (row.models, row.method, row.matching) == (candidate.models, candidate.method, candidate.matching)
                and (row.data_set, row.domain) == (name, domain)
            }
            wanted = expected(candidate.model, count, seed)
            assert found.keys() == wanted.keys()
            for metric, value in wanted.items():
                assert found[metric] == pytest.approx(value, rel=1e-5)


def test_testing_again_starts_afresh(tested: CandidateTest) -> None:
    """A second test gives the same rows, not running means over both."""
    first = list(tested.rows)
    trainer().test(tested, [loader(20, 0), loader(11, 1)], verbose=False)
    assert tested.rows == first


def test_matchings_keep_what_they_did(fused: Fused) -> None:
    """Alignments make the twins, the twins keep the functions, the anchor of `paper` is not moved."""
    matched = fused.matched["paper"]
    models = [vit(seed) for seed in range(3)]
    for model, twin, alignment, check in zip(
        models, matched.twins, matched.alignments, matched.preservation, strict=True
    ):
        assert same(alignment.apply(model), twin)
        assert check.exact < 1e-8
        reference = random_logits(model)
        assert (random_logits(twin) - reference).abs().max() < 1e-5 * reference.abs().max()
    assert same(matched.twins[1], models[1])
    assert not same(fused.matched["weights"].twins[1], models[1])


def test_distances_add_up(fused: Fused) -> None:
    """Given, before and after, the squares over roles and layers sum to the whole distance to the anchor('s twin)."""
    models = [vit(seed) for seed in range(3)]
    for matching, matched in fused.matched.items():
        for index, name in ((0, "a"), (2, "c")):
            parts = [d for d in fused.distances if (d.source, d.matching) == (name, matching)]
            assert {d.anchor for d in parts} == {"b"}
            given, before, after = (sum(getattr(d, kind) ** 2 for d in parts) for kind in ("given", "before", "after"))
            assert given == pytest.approx(parameter_distance(models[index].state_dict(), models[1].state_dict()) ** 2)
            gauge = MATCHINGS[matching].gauge
            alone = [fusionlab.canonical(model, gauge).state_dict() for model in (models[index], models[1])]
            assert before == pytest.approx(parameter_distance(*alone) ** 2)
            assert {d.as_given is None for d in parts} == {not gauge}
            twins = matched.twins
            assert after == pytest.approx(parameter_distance(twins[index].state_dict(), twins[1].state_dict()) ** 2)
            assert after < before
    assert not any(d.source == "b" for d in fused.distances)


def test_models_are_not_modified() -> None:
    """Parameters keep their bits, and whether they can be trained; merges can be trained too."""
    models = {"a": vit(0), "b": vit(1)}
    fused = run(Fuser(models, FusionPlan(MATCHINGS)).fuse())
    trainer().test(CandidateTest(fused.candidates, [TestSet("x")]), loader(4, 0), verbose=False)
    assert same(models["a"], vit(0))
    assert same(models["b"], vit(1))
    for model in (*models.values(), *(candidate.model for candidate in fused.candidates)):
        assert all(parameter.requires_grad for parameter in model.parameters())


def test_without_a_trainer() -> None:
    """`fuse` is what the Python calls do; the matched merge is kept, or the plain one."""
    fuser = Fuser({"a": vit(0), "b": vit(1)}, FusionPlan({"paper": recipe("paper")}))
    fused = run(fuser.fuse())
    assert fused is fuser.fused
    assert fused.kept is fused.candidates[-1]
    assert same(fused.candidates[-1].model, fusionlab.fuse([vit(0), vit(1)], "paper"))
    assert same(run(Fuser({"a": vit(0), "b": vit(1)}, FusionPlan()).fuse()).candidates[-1].model, _mean())


def test_what_is_not_matched_needs_no_symmetry() -> None:
    """Classes that nobody has described are merged as they are, also by what looks at data; nothing else is guessed."""
    models = {name: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for name in "ab"}
    inputs = Inputs.from_batches([{"x": torch.randn(8, 3)}], 2)
    fused = run(Fuser(models, FusionPlan(methods={"simple": {}, "regmean": {}}), inputs).fuse())
    assert same(fused.candidates[2].model, fusionlab.merge(list(models.values())))
    assert same(fused.candidates[3].model, fusionlab.merge(list(models.values()), "regmean", data=inputs.shared))
    for plan in (FusionPlan({"paper": recipe("paper")}), FusionPlan(methods={"circuit": {}})):
        with pytest.raises(SymmetryError, match="Sequential"):
            Fuser(models, plan)
    with pytest.raises(InputError, match=r"'0\.weight' has shape 5 x 3 in b"):
        Fuser(models | {"b": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))}, FusionPlan())


def test_nothing_is_inferred_where_nothing_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a minute of models that are traced themselves; a base model of their class and config is as quick."""
    monkeypatch.setattr(fusionlab.models, "blueprint", Mock(side_effect=AssertionError))
    models = {"a": vit(0), "b": vit(1)}
    fused = run(Fuser(models, FusionPlan(methods={"simple": {}, "task_arithmetic": {}}), base=vit(2)).fuse())
    assert same(fused.candidates[2].model, _mean())
    with pytest.raises(AssertionError):
        Fuser(models, FusionPlan(methods={"circuit": {}}))


def test_seconds_are_those_that_matching_gathering_and_merging_took() -> None:
    """No more than all of it took."""
    start = time.perf_counter()
    data = Inputs.from_batches([{"pixel_values": torch.randn(4, 1, 8, 8)}], 2)
    plan = FusionPlan({"paper": recipe("paper")}, methods={"regmean": {}})
    fused = run(Fuser({"a": vit(0), "b": vit(1)}, plan, data).fuse())
    elapsed = time.perf_counter() - start
    seconds = [one.seconds for one in fused.candidates if one.seconds is not None]
    assert len(seconds) == 2
    assert all(0 < found <= elapsed for found in (*seconds, fused.matched["paper"].seconds))


def test_running_statistics_are_averaged_where_there_are_some_and_no_data() -> None:
    data = Inputs.from_batches([{"pixel_values": torch.randn(4, 1, 8, 8)}], 2)
    for build, given, averaged in ((vit, None, False), (vit, data, False), (resnet, None, True), (resnet, data, False)):
        fuser = Fuser({"a": build(0), "b": build(1)}, FusionPlan(), given)
        assert fuser.averaged is averaged


def resnet(seed: int) -> nn.Module:
    """A small net with BatchNorm."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"num_channels": 1, "embedding_size": 4, "hidden_sizes": [4], "depths": [1]}
    return ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic"))


def _mean() -> nn.Module:
    return fusionlab.merge([vit(0), vit(1)])


def test_labels_out_of_range_name_the_data_set() -> None:
    """The second loader is at fault, and the sentence says so."""
    few = {name: vit(seed, num_labels=3) for seed, name in enumerate("ab")}
    module = CandidateTest(run(Fuser(few, FusionPlan()).fuse()).candidates, [TestSet("good"), TestSet("bad")])
    good = [sample | {"labels": sample["labels"] % 3} for sample in samples(4, 0)]
    with pytest.raises(InputError, match=r"bad: the data holds the label \d for a model of 3 classes"):
        trainer().test(module, [DataLoader(good, batch_size=4), loader(20, 0)], verbose=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"models": {"a": vit(0)}}, "1 end model was given"),
        ({"models": {"a": vit(0), "b": bert()}}, "expected end models of one architecture"),
        ({"anchor": 2}, "anchor is 2"),
        ({"matchings": {"x": recipe("paper", layers="9")}}, "layers asks for '9'"),
        ({"matchings": {"x": recipe("paper", spaces=("qk",))}}, "spaces names 'qk'"),
        ({"methods": {"slerp": {"t": 2.0}}}, r"t is 2\.0; expected a number from 0 to 1"),
        ({"methods": {"regmean": {"alpha": 2}}}, "alpha is 2"),
        ({"methods": {"ties": {}}}, "needs the base model"),
        ({"methods": {"simple": {"layer_weights": {"none*": [1, 1]}}}}, "'none.', which matches no parameter"),
        ({"methods": {"simple": {"layer_weights": {"*": [1, 1, 1]}}}}, "has 3 numbers for 2 models"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(keywords: dict[str, Any], message: str) -> None:
    """When the fuser is made."""
    arguments: dict[str, Any] = {"models": {"a": vit(0), "b": vit(1)}, "matchings": MATCHINGS} | keywords
    with pytest.raises(InputError, match=message):
        Fuser(arguments.pop("models"), FusionPlan(**arguments))


def test_each_example_is_kept_for_intervals(tested: CandidateTest) -> None:
    """Every candidate on every loader, in their order: the rows follow from what their examples add."""
    assert len(tested.measured) == 6 * 2
    found = {
        (one.models, one.method, one.matching, one.data_set, one.domain, metric): kept
        for one in tested.measured
        for metric, kept in one.answers.contributions.items()
    }
    assert len(found) == len(tested.rows)
    for row in tested.rows:
        kept = found[row.models, row.method, row.matching, row.data_set or "", row.domain, row.metric]
        assert kept.examples == {"near": 20, "far": 11}[row.data_set or ""]
        assert kept.scores(np.ones((1, kept.examples))) == pytest.approx([row.value], rel=1e-5)


def test_a_part_of_the_data_gives_no_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Lightning's own sampler each of several processes sees some examples only, and some of them twice."""
    sets = [loader(20, 0), loader(11, 1)]
    halves = [DataLoader(s.dataset, batch_size=8, sampler=DistributedSampler(s.dataset, 2, 0)) for s in sets]
    module = CandidateTest(run(Fuser({"a": vit(0), "b": vit(1)}, FusionPlan()).fuse()).candidates, SETS)
    monkeypatch.setattr(Trainer, "world_size", 2)
    for loaders, kept in ((halves, 0), ([halves[0], sets[1]], 3), (sets, 6)):
        trainer().test(module, loaders, verbose=False)
        assert len(module.measured) == kept
