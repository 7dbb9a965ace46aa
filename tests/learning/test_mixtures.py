"""Mixtures: convex combinations of two examples, the same for all inputs of an example, and only of real numbers."""

import torch

from fusionlab.learning.batches import DistillationBatch, ExamplePool
from fusionlab.learning.collecting import collect
from fusionlab.learning.mixtures import mixtures
from fusionlab.learning.supplement import Supplement
from tests.matching.refining import inputs
from tests.symmetry.models import generator, random_model


def test_mixtures_lie_between_two_examples():
    """Every mixture is one combination of one pair, for each of its inputs; labels are left out."""
    first = torch.randn(5, 3, 4, 4, generator=generator(0), dtype=torch.float64)
    batch = {"pixel_values": first, "again": 2 * first.flatten(1), "labels": torch.arange(5)}
    found = mixtures(batch, 50, generator(1))
    assert found is not None
    assert set(found) == {"pixel_values", "again"}
    assert torch.allclose(found["again"], 2 * found["pixel_values"].flatten(1))
    basis = first.flatten(1)
    shares = torch.linalg.lstsq(basis.T, found["pixel_values"].flatten(1).T).solution
    assert torch.allclose(basis.T @ shares, found["pixel_values"].flatten(1).T)
    assert torch.allclose(shares.sum(0), torch.ones(50, dtype=torch.float64))
    assert bool((shares > -1e-9).all())
    assert bool(((shares.abs() > 1e-9).sum(0) <= 2).all())
    assert shares.max(0).values.min() < 0.7
    assert shares.max(0).values.max() > 0.9


def test_tokens_are_not_mixed():
    """There is no token between two others."""
    batch = {"input_ids": torch.ones(4, 6, dtype=torch.long), "noise": torch.rand(4, 6, generator=generator(0))}
    assert mixtures(batch, 3, generator(0)) is None
    assert mixtures({"labels": torch.rand(4, 2, generator=generator(0))}, 3, generator(0)) is None


def sizes(pool: ExamplePool) -> list[int]:
    return [len(group) for group in pool.groups]


def test_few_inputs_are_filled_up_and_answered():
    """A pool is filled up to the number asked for; the targets of mixtures are the end models' answers to them."""
    models = [random_model("vit-classifier", seed).float().eval() for seed in range(2)]
    config = models[0].config
    shape = (6, config.num_channels, config.image_size, config.image_size)
    data = [{"pixel_values": torch.randn(shape, generator=generator(0))}]
    plain, filled = (collect(models, data, None, 300, True, supplement=Supplement(mixed)) for mixed in (0, 300))
    assert sizes(plain) == [6]
    assert sizes(filled) == [300]
    assert filled.groups[0].targets is not None
    with torch.no_grad():
        pixels = filled.groups[0].inputs["pixel_values"]
        answers = torch.stack([model(pixel_values=pixels).logits.softmax(-1) for model in models]).mean(0)
    assert torch.allclose(filled.groups[0].targets.values, answers, atol=1e-5)
    assert torch.equal(pixels[:6], data[0]["pixel_values"])
    assert sizes(collect(models, data, None, 300, True, supplement=Supplement(6))) == [6]
    assert sizes(collect(models, data, None, 20, True, supplement=Supplement(300))) == [20]


def test_mixtures_stay_within_memory():
    """A pool is filled up only as far as its bytes allow; one that is full takes none."""
    model = random_model("vit-classifier")
    models, data = [model, model], inputs(model, 1, batch=6)
    whole = collect(models, data, None, 300, True)
    (taught,) = whole.groups
    assert taught.targets is not None
    used = taught.inputs["pixel_values"].nbytes + taught.targets.values.nbytes
    assert sizes(collect(models, data, None, 300, True, memory=3 * used, supplement=Supplement(300))) == [18]
    assert sizes(collect(models, data, None, 300, True, memory=used, supplement=Supplement(300))) == [6]


def test_images_with_other_class_names_lie_apart():
    """Of one shape they would be joined, and all be read with the names of the first."""
    pixels = torch.arange(4.0).view(4, 1, 1, 1)
    names = [torch.full((4, 2, 3), number) for number in (0, 1, 0)]
    batches = [DistillationBatch({"pixel_values": pixels, "input_ids": ids}) for ids in names]
    pool = ExamplePool(batches)
    assert sizes(pool) == [8, 4]
    for group in pool.groups:
        assert (group.inputs["input_ids"] == group.inputs["input_ids"][0]).all()
    assert sizes(ExamplePool([DistillationBatch({"input_ids": ids}) for ids in names])) == [12]
