"""CLIP learns which text an image goes with; what reads texts is trained only where that is asked for."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fusionlab import checkpoints
from fusionlab.data import Digits, ZeroShotImages
from fusionlab.errors import InputError
from fusionlab.tasks import ZeroShotImageClassification
from tests.data.colours import COLOURS, clip, description, images
from tests.tasks.sample import fitted


def colours(tmp_path: Path) -> Any:
    return ZeroShotImages(
        images(tmp_path / "x"), clip(tmp_path / "clip"), image_size=8, test_split="train", augment=False, batch_size=12
    )


def test_classes_are_learned(tmp_path: Path) -> None:
    """Through the images alone; predictions name them."""
    data = colours(tmp_path)
    task = ZeroShotImageClassification(str(tmp_path / "clip"), learning_rate=3e-3)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    assert fitted(task, data, tmp_path, steps=80)["test/accuracy"] == 1
    moved = {
        name.split(".")[0] for name, value in task.model.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved == {"vision_model", "visual_projection"}
    task.class_names = data.class_names
    batches = [task.eval().predict_step(batch, 0) for batch in data.predict_dataloader()]
    header, *rows = task.prediction_rows(batches)
    assert header == ["sample", "predicted", *sorted(COLOURS)]
    assert [row[1] for row in rows] == [name for name in sorted(COLOURS) for _ in range(6)]


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_not_trained_is_without_dropout(trained: bool) -> None:
    """A text has one embedding, whatever else is trained."""
    task = ZeroShotImageClassification({"model_type": "clip", **description()}, train_texts=trained)
    modes = {name: part.training for name, part in task.train().model.named_children()}
    of_texts = {name: mode for name, mode in modes.items() if name.startswith("text")}
    assert of_texts
    assert set(of_texts.values()) == {trained}
    assert all(mode for name, mode in modes.items() if name not in of_texts)


def test_texts_are_trained_where_asked_for(tmp_path: Path) -> None:
    """Of a fresh model, which has read none."""
    data = colours(tmp_path)
    task = ZeroShotImageClassification({"model_type": "clip", **description()}, train_texts=True, learning_rate=3e-3)
    before = task.model.state_dict()["text_projection.weight"].clone()
    assert fitted(task, data, tmp_path, steps=80)["test/accuracy"] == 1
    assert not torch.equal(task.model.state_dict()["text_projection.weight"], before)
    checkpoints.save(task.model, tmp_path / "saved")
    assert type(checkpoints.load(tmp_path / "saved")).__name__ == "CLIPModel"


def test_images_without_texts_are_refused(tmp_path: Path) -> None:
    task = ZeroShotImageClassification(clip(tmp_path / "clip"))
    with pytest.raises(InputError, match=r"no texts of classes, of shape \(batch, classes, tokens\)"):
        fitted(task, Digits(), tmp_path, steps=1)
