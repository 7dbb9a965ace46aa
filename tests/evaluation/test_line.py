"""The line between two models under Lightning's Trainer."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

import fusionlab
from fusionlab.evaluation.line import LineModule, move_along_line
from tests.commands.small import timm_vit, vit


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
@pytest.mark.parametrize("make", [vit, timm_vit])
def test_line_module_equals_barrier(make: Any) -> None:
    """The same losses and accuracies as the Python call, at every position; the models keep every bit."""
    a, b = make(0), make(1)
    generator = torch.Generator().manual_seed(0)
    samples: Any = [
        {"pixel_values": torch.randn(1, 8, 8, generator=generator), "labels": torch.tensor(index % 10)}
        for index in range(11)
    ]
    loader = DataLoader(samples, batch_size=4)
    positions = [0, 0.25, 0.5, 0.75, 1]
    module = LineModule(a, b, positions)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    for _ in range(2):  # a second test starts afresh
        Trainer(accelerator="cpu", enable_model_summary=False, **quiet).test(module, [loader] * 5, verbose=False)
    curve = fusionlab.barrier(a, b, loader, points=5)
    assert [score["loss"] for score in module.scores] == pytest.approx(curve.loss, rel=1e-6)
    assert [score["accuracy"] for score in module.scores] == pytest.approx(curve.score, rel=1e-6)
    assert len({round(loss, 4) for loss in curve.loss}) == 5
    for model, seed in ((a, 0), (b, 1)):
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), make(seed).parameters(), strict=True))


def test_ends_are_the_models_themselves() -> None:
    """At 0 and 1 not a bit is lost; in between it is the weighted mean; other dtypes become the anchor's."""
    a, b, model = vit(0), vit(1), vit(2)
    for position, end in ((0.0, a), (1.0, b)):
        move_along_line(model, a, b, position)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), end.parameters(), strict=True))
    move_along_line(model, a, b, 0.3)
    for p, start, end in zip(model.parameters(), a.parameters(), b.parameters(), strict=True):
        assert p.double().allclose(0.7 * start.double() + 0.3 * end.double(), atol=1e-6)
    half = vit(1).bfloat16()
    move_along_line(model, a, half, 1.0)
    assert all(torch.equal(p, q.float()) for p, q in zip(model.parameters(), half.parameters(), strict=True))


def test_integer_buffers_are_the_anchors() -> None:
    """There is no line between them."""
    models = [torch.nn.BatchNorm1d(2) for _ in range(3)]
    for count, model in zip((3, 8, 0), models, strict=True):
        model.num_batches_tracked.fill_(count)
    a, b, model = models
    b.running_mean.fill_(4)
    move_along_line(model, a, b, 0.5)
    assert model.num_batches_tracked == 3
    assert model.running_mean.tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
def test_a_second_test_moves_the_model_again() -> None:
    """Also where the first one ended at the same position: the ends may have changed, and old scores do not count."""
    a, b, other = vit(0), vit(1), vit(2)
    generator = torch.Generator().manual_seed(0)
    samples: Any = [
        {"pixel_values": torch.randn(1, 8, 8, generator=generator), "labels": torch.tensor(index % 10)}
        for index in range(11)
    ]
    loader = DataLoader(samples, batch_size=4)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    found = []
    module = LineModule(a, b, [0.5])
    for source in (b, other):
        module.given[1].load_state_dict(source.state_dict())
        Trainer(accelerator="cpu", enable_model_summary=False, **quiet).test(module, [loader], verbose=False)
        found.append(module.scores[0]["loss"])
    fresh = LineModule(a, other, [0.5])
    Trainer(accelerator="cpu", enable_model_summary=False, **quiet).test(fresh, [loader], verbose=False)
    assert found[1] == pytest.approx(fresh.scores[0]["loss"], rel=1e-6)
    assert found[0] != pytest.approx(found[1], rel=1e-2)
