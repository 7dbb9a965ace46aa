"""Merges and lines of models with BatchNorm: a hidden twin is no loss, and statistics are those of the merge."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fusionlab
from fusionlab.batch_norm import batch_norms, by_batch, remeasured, running_statistics
from fusionlab.errors import InputError
from fusionlab.evaluation.line import LineModule, move_along_line
from fusionlab.evaluation.scores import Scores
from fusionlab.forward import logits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.learning.points import at_point
from fusionlab.matching.learned import Refinement
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.merging import merge_states
from fusionlab.merging.correction import correct
from fusionlab.merging.settling import settling
from fusionlab.models import with_state
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from tests.commands.small import vit
from tests.fusion.test_fuser import trainer
from tests.merging.convolutions import images, permuted, plain, randomized, resnet


def plain_mean(models: list[nn.Module], weights: list[float] | None = None) -> nn.Module:
    return with_state(models[0], merge_states([model.state_dict() for model in models], "simple", weights))


def same(first: nn.Module, second: nn.Module) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return all(torch.allclose(left[name], right[name], rtol=1e-6, atol=1e-9) for name in left)


@pytest.mark.parametrize("preset", ["weights", "git-rebasin", "correlation"])
def test_a_planted_permutation_costs_nothing(preset: str) -> None:
    """Matched, the mean of a net and its hidden twin is the net, running statistics and all; unmatched it is not."""
    model = remeasured(resnet(0), images(24, size=16))
    drawn = Alignment.random(blueprint(model), torch.Generator().manual_seed(3))
    # The other presets look for permutations alone, and not for the factors behind batch norms.
    hidden = (drawn if preset == "weights" else permuted(blueprint(model))).apply(model)
    # Trained for longer.
    for norm in batch_norms(hidden).values():
        norm.num_batches_tracked.add_(5)
    data: Any = {"data": images(24, size=16)} if preset == "correlation" else {}
    twins = fusionlab.align([model, hidden], preset=preset, **data)
    batch = images(6, size=16, seed=1)[0]
    with torch.no_grad():
        wanted, merged, unmatched = (
            logits(found, batch) for found in (model, plain_mean(list(twins)), plain_mean([model, hidden]))
        )
    torch.testing.assert_close(merged, wanted, rtol=1e-9, atol=1e-9)
    assert (unmatched - wanted).abs().max() > 0.1 * wanted.abs().max()


def test_counters_of_batches_are_the_first_models_and_may_differ() -> None:
    models = [resnet(seed) for seed in (0, 1)]
    for count, model in enumerate(models):
        for norm in batch_norms(model).values():
            norm.num_batches_tracked.fill_(7 + count)
    assert all(norm.num_batches_tracked == 7 for norm in batch_norms(plain_mean(models)).values())


@pytest.mark.parametrize("method", ["task_arithmetic", "ties", "dare", "stock"])
def test_task_vectors_of_variances_are_not_added(method: str) -> None:
    """With a large factor a variance would be negative; it is the end models' mean."""
    models, base = [resnet(seed) for seed in (0, 1)], resnet(2)
    given: dict[str, Any] = {} if method == "stock" else {"lambda_": 5.0}
    states = [model.state_dict() for model in models]
    merged = merge_states(states, method, base=base.state_dict(), **given)
    names = running_statistics(merged)
    assert len(names) == 2 * len(batch_norms(base))
    for name in names:
        torch.testing.assert_close(merged[name], (states[0][name] + states[1][name]) / 2)
    learned = "resnet.embedder.embedder.normalization.weight"
    assert not torch.allclose(merged[learned], (states[0][learned] + states[1][learned]) / 2)


def test_with_data_a_merge_has_statistics_of_its_own() -> None:
    """Without, they are averaged, which is said; models without BatchNorm have nothing to say."""
    models, batches = [resnet(seed) for seed in (0, 1)], images(12, 9, size=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merged = fusionlab.merge(models, data=batches)
        fusionlab.merge([vit(0), vit(1)])
    mean = plain_mean(models)
    assert same(merged, remeasured(mean, batches))
    assert not same(merged, mean)
    # Said where it is called.
    with pytest.warns(UserWarning, match="statistics of BatchNorm were averaged, as no data was given"):
        assert same(fusionlab.merge(models), mean)


def test_every_merge_of_a_fusion_is_measured_on_the_inputs() -> None:
    """Whatever the method; without inputs the statistics are averaged, and the fuser says so."""
    models = {name: resnet(seed) for seed, name in enumerate("ab")}
    batches = images(12, 9, size=16)
    plan = FusionPlan(methods={"simple": {}, "slerp": {}})
    fuser = Fuser(models, plan, Inputs.from_batches(batches, 2))
    assert not fuser.averaged
    for method in plan.methods:
        merge = run(fuser.merge(method, "none")).model
        state = merge_states([model.state_dict() for model in models.values()], method)
        assert same(merge, remeasured(with_state(models["a"], state), batches))
    without = Fuser(models, plan)
    assert without.averaged
    assert same(run(without.merge("simple", "none")).model, plain_mean(list(models.values())))
    assert not Fuser({"a": vit(0), "b": vit(1)}, plan).averaged


@pytest.mark.parametrize(("build", "corrected"), [(resnet, False), (resnet, True), (vit, True)])
def test_points_of_a_line_get_activations_of_their_own(build: Any, corrected: bool) -> None:
    """As a merge of these weights would, measured or corrected; the ends are the models themselves."""
    a, b, size = build(0).double(), build(1).double(), 8 if build is vit else 16
    inputs, test = images(12, 9, size=size), images(10, 5, size=size, seed=1)
    curve = fusionlab.barrier(a, b, test, 5, inputs, corrected)
    untouched = fusionlab.barrier(a, b, test, 5)
    assert [curve.loss[0], curve.loss[-1]] == pytest.approx([untouched.loss[0], untouched.loss[-1]], rel=1e-12)
    for index in (1, 2, 3):
        weights = [1 - curve.positions[index], curve.positions[index]]
        point = plain_mean([a, b], weights)
        point = correct(point, [a, b], inputs, weights) if corrected else remeasured(point, inputs)
        scores = Scores()
        for batch in test:
            scores.update(point, batch)
        assert curve.loss[index] == pytest.approx(scores.compute()["loss"], rel=1e-6)
        assert abs(curve.loss[index] - untouched.loss[index]) > 1e-3


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
def test_line_under_a_trainer_is_the_same(tmp_path: Any) -> None:
    """Measured at every point; the end models keep every bit."""
    a, b, inputs = resnet(0), resnet(1), images(12, 9, size=16)
    before = [copy.deepcopy(model.state_dict()) for model in (a, b)]
    samples: Any = [{name: value[index] for name, value in images(7, size=16)[0].items()} for index in range(7)]
    loader = DataLoader(samples, batch_size=4)
    module = LineModule(a, b, [0, 0.5, 1], settle=settling(a, b, inputs))
    trainer().test(module, [loader] * 3, verbose=False)
    curve = fusionlab.barrier(a, b, loader, 3, inputs)
    assert [score["loss"] for score in module.scores] == pytest.approx(curve.loss, rel=1e-9)
    for model, state in zip((a, b), before, strict=True):
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_settling_changes_nothing_where_there_is_nothing_to_measure() -> None:
    """Models without BatchNorm, unless corrected; and the ends of a line."""
    assert settling(plain(0), plain(1), []) is None
    a, b = resnet(0), resnet(1)
    settle, model = settling(a, b, images(12, size=16)), copy.deepcopy(a)
    assert settle is not None
    for position, end in ((0, a), (1, b)):
        move_along_line(model, a, b, position)
        settle(model, position)
        kept = {n: t for n, t in end.state_dict().items() if t.is_floating_point()}
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in kept.items())


def test_a_correction_needs_inputs_that_can_be_read_again() -> None:
    a, b = plain(0), plain(1)
    with pytest.raises(InputError, match="no inputs were given; expected inputs"):
        fusionlab.barrier(a, b, images(4), correct=True)
    with pytest.raises(InputError, match="inputs can be gone through only once"):
        fusionlab.barrier(a, b, images(4), inputs=iter(images(4)))


def test_learning_computes_between_models_by_batch() -> None:
    """A point between two nets has no running statistics; end models as targets keep theirs."""
    layers = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)]
    model = randomized(nn.Sequential(*layers), 0)
    draw = torch.Generator().manual_seed(1)
    batches: list[dict[str, Tensor]] = [{"input": torch.randn(9, 4, generator=draw)}]
    description = blueprint(model, batches[0])
    starts = [Alignment.identity(description)] * 2
    stage = Refinement([model, model], starts, batches, RefineOptions(steps=1))
    assert running_statistics(stage.student.state_dict()) == []
    assert running_statistics(stage.teachers[0].state_dict()) == running_statistics(model.state_dict()) != []
    point = {name: 0.5 * parameter for name, parameter in model.named_parameters()}
    with torch.no_grad():
        found = at_point(stage.student, point, logits, batches[0])
        halved = with_state(model, model.state_dict() | point)
        torch.testing.assert_close(found, logits(by_batch(halved), batches[0]))
        assert (found - logits(halved, batches[0])).abs().max() > 1e-2


def test_learning_of_permutations_alone_is_refused() -> None:
    """No factor passes the GELU behind a block; the ReLU inside of one lets some pass, and they are learned."""
    nets = [resnet(seed, activation="gelu") for seed in (0, 1)]
    with pytest.raises(InputError, match="channels of convolutions are matched by weights, activations or correlation"):
        fusionlab.align(nets, preset="learned", data=images(8, size=16), steps=1, spaces=("residual",))
    twins = fusionlab.align([resnet(0), resnet(1)], preset="learned", data=images(8, size=16), steps=1)
    batch = images(6, size=16, seed=1)[0]
    with torch.no_grad():
        torch.testing.assert_close(logits(twins[1], batch), logits(resnet(1), batch), rtol=1e-6, atol=1e-6)
