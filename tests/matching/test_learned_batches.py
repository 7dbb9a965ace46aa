"""Learned refinement: who teaches what, where between the models, and on which inputs."""

from collections.abc import Sequence

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import GPT2Config, GPT2LMHeadModel

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.learning.batches import ANSWERS, BATCH, DistillationBatch, draws, examples_at_once
from fusionlab.learning.collecting import collect
from fusionlab.learning.distillation import output_of
from fusionlab.learning.labels_loss import labels_loss
from fusionlab.learning.points import mixed, random_points
from fusionlab.matching.learned import Refinement
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import StagedModule, Stages
from fusionlab.symmetry import Alignment
from tests.commands.small import vit
from tests.matching.refining import folded, gpt2, inputs, labelled, mean_of, planted, refined, turned
from tests.symmetry.models import generator, random_model, randomize


# A run in one process.
class Alone(StagedModule):
    def stages(self) -> Stages[None]:
        yield from ()


ALONE = Alone()


def test_points_lie_on_the_simplex_and_on_edges_as_often_as_asked():
    """Weights sum to one; a share `edges` of the draws has a point for each of disjoint couples, all couples alike."""
    draw = numpy.random.default_rng(0)
    drawn = [random_points(5, 0.25, None, draw) for _ in range(4000)]
    numpy.testing.assert_allclose([sum(point) for points in drawn for point in points], 1)
    coupled = [points for points in drawn if len(points) > 1]
    assert abs(len(coupled) / 4000 - 0.25) < 0.03
    couples = [[tuple(numpy.flatnonzero(point)) for point in points] for points in coupled]
    assert all(len({*first, *second}) == 4 for first, second in couples)
    assert all(min(points[0]) > 0 for points in drawn if len(points) == 1)
    flat = [couple for both in couples for couple in both]
    counts = [flat.count(couple) for couple in set(flat)]
    assert len(counts) == 10
    assert min(counts) > 130
    two = numpy.array([point for _ in range(4000) for point in random_points(2, 0.9, None, draw)])
    # Beta(10, 10): mean 1/2, variance 1 / 84.
    assert len(two) == 4000
    assert abs(two[:, 0].mean() - 0.5) < 0.01
    assert abs(two[:, 0].var() * 84 - 1) < 0.1


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_couples_hold_every_model_but_one_of_an_odd_number(count):
    points = numpy.array(random_points(count, 1, None, numpy.random.default_rng(0)))
    assert points.shape == (count // 2, count)
    assert ((points > 0).sum(1) == 2).all()
    assert sorted((points > 0).sum(0)) == [0] * (count % 2) + [1] * (count - count % 2)


def test_couples_share_the_inputs_of_a_step():
    """A step on an edge is the mean over couples, each on its part of the batch; a small batch has fewer."""
    models = [random_model("vit-classifier", seed=seed) for seed in range(5)]
    (batch,) = inputs(models[0], 1, batch=8)
    options = RefineOptions(edges=1, seed=3)
    stage = Refinement(models, [Alignment.identity(folded(models[0]))] * 5, [batch], options)
    twins = stage.twins.states()

    def expected(parts: Sequence[slice]) -> float:
        points = random_points(5, 1, None, numpy.random.default_rng((3, 0, 0)))
        losses = [
            stage.loss_at(ALONE, mixed(twins, point), [DistillationBatch({n: x[part] for n, x in batch.items()})])
            for point, part in zip(points, parts, strict=False)
        ]
        return float(torch.stack(losses).mean())

    assert float(stage.loss(ALONE, [DistillationBatch(batch)])) == pytest.approx(
        expected([slice(0, 4), slice(4, 8)]), rel=1e-6
    )
    one = {name: value[:1] for name, value in batch.items()}
    assert float(stage.loss(ALONE, [DistillationBatch(one)])) == pytest.approx(expected([slice(0, 1)]), rel=1e-6)


@pytest.mark.parametrize("kind", ["vit", "timm"])
def test_labels_teach_too(kind):
    """Labels lower their own loss half way; without them in the data the error says so."""
    model = random_model("vit-classifier") if kind == "vit" else random_model("timm-plain")
    models = [model, turned(folded(model), 0.25).apply(model)]
    data = labelled(model, inputs(model, 10))
    found = refined(models, data, steps=60, batch_size=32, target="labels")

    def accuracy(alignments: Sequence[Alignment]) -> float:
        merged = mean_of([a.apply(m) for a, m in zip(alignments, models, strict=True)])
        with torch.no_grad():
            hits = [(output_of(merged, b).argmax(-1) == b["labels"]).double().mean() for b in data]
        return float(torch.stack(hits).mean())

    assert accuracy(found) > accuracy([Alignment.identity(folded(model))] * 2) + 0.1
    with pytest.raises(InputError, match="labels"):
        refined(models, inputs(model, 1), steps=1, target="labels")


def test_unknown_ones_of_several_labels_teach_nothing():
    """Labels of -100 are none, of whole numbers or not."""
    model = vit(0, num_labels=3, problem_type="multi_label_classification")
    pixels = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, 0, -100], [0, 0, 1], [-100, -100, -100], [1, 1, 0]])
    known = labels >= 0
    with torch.no_grad():
        logits = model(pixels).logits
        expected = binary_cross_entropy_with_logits(logits[known], labels[known].float())
        for given in (labels, labels.float()):
            found = labels_loss(model, {"pixel_values": pixels, "labels": given})
            torch.testing.assert_close(found, expected)


def test_labels_in_the_data_are_not_looked_at_by_default():
    models = planted()
    data = inputs(models[0], 2)
    wrong = [{**batch, "labels": torch.zeros(len(batch["pixel_values"]), dtype=torch.long)} for batch in data]
    plain, with_labels = (refined(models, d, steps=3) for d in (data, wrong))
    assert all(torch.equal(plain[1].elements[n], e) for n, e in with_labels[1].elements.items())


def test_each_model_teaches_alone_on_its_own_inputs():
    """With inputs of their own, the loss is against that one model; models that disagree show the difference."""
    models = [random_model("vit-classifier", seed=seed) for seed in (0, 1)]
    ours, theirs = inputs(models[0], 1, seed=2), inputs(models[0], 1, seed=3)
    description = folded(models[0])
    stage = Refinement(models, [Alignment.identity(description)] * 2, (ours, theirs), RefineOptions())
    pools = [collect(models, source, own, 16, with_targets=True) for own, source in enumerate((ours, theirs))]
    (batches,) = draws(pools, 1, 32, seed=0)
    for own, (taught, source) in enumerate(zip(batches, (ours, theirs), strict=True)):
        with torch.no_grad():
            expected = output_of(models[own], taught.inputs).softmax(-1)
        assert taught.own == own
        assert taught.targets is not None
        torch.testing.assert_close(taught.targets.values, expected)
        drawn = {tuple(row.flatten().tolist()) for row in taught.inputs["pixel_values"]}
        assert drawn == {tuple(row.flatten().tolist()) for row in source[0]["pixel_values"]}
    # The same when targets are too large to keep and are computed for each taught.
    late = [
        collect(models, s, own, 16, True, memory=s[0]["pixel_values"].nbytes) for own, s in enumerate((ours, theirs))
    ]
    (again,) = draws(late, 1, 32, seed=0)
    assert all(taught.targets is None for taught in again)
    point = stage.twins.states()[0]
    assert float(stage.loss_at(ALONE, point, again)) == pytest.approx(
        float(stage.loss_at(ALONE, point, batches)), rel=1e-6
    )
    found = refined(models, (ours, theirs), steps=2)
    check_preservation(models[1], found[1].apply(models[1]), found[1])


@pytest.mark.parametrize("own", [None, 1])
def test_targets_that_are_not_kept_leave_out_the_same_labels(own):
    """Models that know some labels each: the loss is the same whether memory holds the targets or not."""
    models = [random_model("vit-classifier", seed=seed) for seed in (0, 1)]
    known = [torch.arange(models[0].config.num_labels) < 3, torch.arange(models[0].config.num_labels) > 1]
    data = inputs(models[0], 1)
    start = [Alignment.identity(folded(models[0]))] * 2
    stage = Refinement(models, start, data, RefineOptions(), known=known)
    losses = []
    for memory, whose in ((1e9, known), (data[0]["pixel_values"].nbytes, known), (1e9, None)):
        pool = collect(models, data, own, 16, True, memory=int(memory), known=whose)
        (batches,) = draws([pool], 1, 16, seed=0)
        assert (batches[0].targets is None) == (memory < 1e9)
        losses.append(float(stage.loss_at(ALONE, stage.twins.states()[0], batches)))
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] != pytest.approx(losses[0], rel=1e-2)


def test_targets_go_where_later_ones_do_not_fit():
    """Those of earlier batches too: a source keeps all of its targets or none, and all the inputs that fit then."""
    model = random_model("vit-classifier")
    data = inputs(model, 2, batch=8)
    (one,) = collect([model], data[:1], None, 16, True).groups
    assert one.targets is not None
    pixels, targets = one.inputs["pixel_values"].nbytes, one.targets.values.nbytes
    (both,) = collect([model], data, None, 16, True, memory=2 * pixels + targets).groups
    assert both.targets is None
    assert len(both) == 16


def test_targets_go_along_to_another_device():
    batch = collect([random_model("vit-classifier")], inputs(random_model("vit-classifier"), 1), None, 8, True).groups[
        0
    ]
    moved = batch.to(torch.device("meta"))
    assert moved.targets is not None
    assert {moved.targets.values.device.type, *(x.device.type for x in moved.inputs.values())} == {"meta"}


def test_draws_follow_from_the_seed():
    """The same twice, others for another seed; every process draws the same."""
    model = random_model("vit-classifier")
    pool = collect([model], inputs(model, 2, batch=16), None, 32, with_targets=False)

    def drawn(seed: int) -> list[Tensor]:
        return [batches[0].inputs["pixel_values"] for batches in draws([pool], 3, 8, seed)]

    first, again, other = drawn(0), drawn(0), drawn(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_step_has_fewer_examples_of_several_answers():
    """128 images, or texts of 2,048 tokens together; the longest texts count, and no more are read than are drawn."""
    assert list(map(examples_at_once, (1, 16, 128, 1024, ANSWERS, 2 * ANSWERS))) == [BATCH, BATCH, 16, 2, 1, 1]
    config = GPT2Config(n_embd=24, n_layer=1, n_head=3, n_positions=256, vocab_size=40)
    model = randomize(GPT2LMHeadModel(config), seed=0)
    texts = [{"input_ids": torch.randint(40, (12, length), generator=generator(0))} for length in (8, 128, 128, 128)]
    pool = collect([model], texts, None, 10_000, with_targets=True)
    assert [group.answers for group in pool.groups] == [8, 128]
    steps = [(len(step), step.inputs["input_ids"].shape[1]) for (step,) in draws([pool], 6, None, 0)]
    assert set(steps) == {(12, 8), (ANSWERS // 128, 128)}
    (asked,) = next(draws([pool], 1, 5, 0))
    assert len(asked) == 5
    read = collect([model], iter(texts), None, 10_000, with_targets=True, answers=20 * 8)
    assert sum(map(len, read.groups)) == 24
    image = random_model("vit-classifier")
    (group,) = collect([image], inputs(image, 1, batch=3), None, 8, True, answers=2).groups
    assert (group.answers, len(group)) == (1, 3)


def test_texts_of_several_lengths_are_drawn_with_their_masks():
    """Batches padded to different lengths stay apart; hidden tokens do not change the loss."""
    model = randomize(gpt2(), seed=0)
    models = [model, turned(folded(model), 0.1).apply(model)]
    draw = generator(0)
    data = []
    for length in (5, 9):
        mask = torch.ones(6, length, dtype=torch.long)
        mask[:3, length - 2 :] = 0
        data.append({"input_ids": torch.randint(40, (6, length), generator=draw), "attention_mask": mask})
    pool = collect(models, data, None, 100, with_targets=True)
    lengths = {
        taught.inputs["input_ids"].shape for taught, _ in zip(pool.draw(6, generator(1)), range(8), strict=False)
    }
    assert lengths == {(6, 5), (6, 9)}
    found = refined(models, data, steps=3, batch_size=6)
    other = [{**b, "input_ids": torch.where(b["attention_mask"] == 0, 7, b["input_ids"])} for b in data]
    same = refined(models, other, steps=3, batch_size=6)
    for name, element in found[1].elements.items():
        torch.testing.assert_close(same[1].elements[name], element, rtol=0, atol=1e-6)


def test_data_that_does_not_fit_the_model_is_refused_in_a_sentence():
    """Images of another size."""
    model = random_model("vit-classifier")
    data = [{key: value[..., :-1] for key, value in batch.items()} for batch in inputs(model, 1)]
    with pytest.raises(InputError, match="the data does not fit the model"):
        refined([model, model], data, steps=1)
