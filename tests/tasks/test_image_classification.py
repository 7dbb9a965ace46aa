"""Training image classifiers of both libraries, fresh or from a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from PIL import Image
from torch import Tensor
from transformers import ViTForImageClassification

from fusionlab import checkpoints
from fusionlab.data import Digits, Images
from fusionlab.errors import InputError
from fusionlab.tasks import ExportCheckpoint, ImageClassification

VIT: dict[str, Any] = {
    "library": "transformers", "model_type": "vit", "image_size": 8, "patch_size": 4, "num_channels": 1,
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip
RESNET: dict[str, Any] = {
    "library": "transformers", "model_type": "resnet", "num_channels": 1, "embedding_size": 8, "hidden_sizes": [8, 16],
    "depths": [1, 1], "layer_type": "basic",
}  # fmt: skip
TIMM: dict[str, Any] = {
    "library": "timm", "architecture": "vit_tiny_patch16_224", "img_size": 8, "patch_size": 4, "in_chans": 1,
    "embed_dim": 16, "depth": 2, "num_heads": 2,
}  # fmt: skip


def trainer(folder: Path, **arguments: Any) -> Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **quiet, **arguments)


@pytest.mark.parametrize("description", [VIT, TIMM, RESNET], ids=["transformers", "timm", "convolutions"])
def test_one_epoch_lowers_the_loss_and_the_export_is_the_model(tmp_path: Path, description: dict[str, Any]) -> None:
    """After an epoch the model is better than chance; the exported folder and the Lightning file hold that model."""
    seed_everything(0)
    data = Digits()
    task = ImageClassification(description, 10, learning_rate=3e-3)
    fit = trainer(tmp_path, callbacks=[ExportCheckpoint(str(tmp_path / "out"))])
    fit.fit(task, datamodule=data)
    assert fit.callback_metrics["val/accuracy"] > 0.15
    assert fit.callback_metrics["val/loss"] < 2.4
    batch = next(iter(data.test_dataloader()))
    with torch.no_grad():
        expected, trained = task.eval()(batch), task.model.state_dict()
        for source in (tmp_path / "out", fit.checkpoint_callback.best_model_path):  # type: ignore[union-attr]
            exported = checkpoints.load(source)
            written = exported.state_dict()
            assert written.keys() == trained.keys()
            assert all(torch.equal(written[name], tensor) for name, tensor in trained.items())
            found = task.__class__.forward(_with(task, exported), batch)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if description is VIT:
        ViTForImageClassification.from_pretrained(tmp_path / "out")


def _with(task: ImageClassification, model: torch.nn.Module) -> ImageClassification:
    task.model = model
    return task


def test_export_takes_the_best_weights_when_a_metric_is_monitored(tmp_path: Path) -> None:
    """With a monitored metric the exported weights are those of the best file, not the last ones."""
    seed_everything(0)
    # The worst accuracy is called best, so that a collapse of the learning rate keeps the first epoch.
    best = ModelCheckpoint(dirpath=tmp_path, monitor="val/loss", mode="max")
    fit = Trainer(
        max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[best, ExportCheckpoint(str(tmp_path / "out"))],
    )  # fmt: skip
    task = ImageClassification(VIT, 10, learning_rate=3e-3)
    fit.fit(task, datamodule=Digits())
    stored = checkpoints.load(best.best_model_path).state_dict()
    exported = checkpoints.load(tmp_path / "out").state_dict()
    assert all(torch.equal(exported[name], tensor) for name, tensor in stored.items())
    assert not torch.equal(exported["classifier.weight"], task.model.state_dict()["classifier.weight"])


def test_export_refuses_an_existing_folder_before_training(tmp_path: Path) -> None:
    """The refusal comes before the first step."""
    (tmp_path / "out").mkdir()
    task = ImageClassification(VIT, 10)
    before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    with pytest.raises(InputError, match="exists already"):
        trainer(tmp_path, callbacks=[ExportCheckpoint(str(tmp_path / "out"))]).fit(task, datamodule=Digits())
    assert all(torch.equal(before[name], tensor) for name, tensor in task.state_dict().items())


def test_weights_follow_the_seed() -> None:
    """One seed, one model; another seed, another model."""

    def weights(seed: int) -> Tensor:
        seed_everything(seed)
        return next(ImageClassification(VIT, 10).parameters()).detach()

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize("description", [VIT, TIMM], ids=["transformers", "timm"])
def test_only_the_head_is_replaced(
    tmp_path: Path, description: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint with ten classes fine-tuned on three keeps every weight but the head's, and says so."""
    original = ImageClassification(description, 10).model.eval()
    checkpoints.save(original, tmp_path / "a")
    same = ImageClassification(str(tmp_path / "a"), 10).model.state_dict()
    assert all(torch.equal(same[name], tensor) for name, tensor in original.state_dict().items())
    assert "replaced" not in capsys.readouterr().err
    changed = ImageClassification(str(tmp_path / "a"), 3).model.state_dict()
    different = {n for n, t in original.state_dict().items() if changed[n].shape != t.shape or not changed[n].equal(t)}
    head = "classifier" if description is VIT else "head"
    assert different == {f"{head}.weight", f"{head}.bias"}
    assert "replaced" in capsys.readouterr().err


def test_probabilities_sum_to_one(tmp_path: Path) -> None:
    """Predictions are probabilities of shape (batch, classes)."""
    batches = trainer(tmp_path).predict(ImageClassification(VIT, 10), datamodule=Digits())
    probabilities = torch.cat(batches)  # type: ignore[arg-type]
    assert probabilities.shape == (397, 10)
    assert torch.allclose(probabilities.sum(-1), torch.ones(397))


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (VIT, {"num_classes": 0}, "num_classes is 0"),
        (VIT, {"learning_rate": 0.0}, "learning_rate"),
        (VIT, {"warmup_ratio": 2.0}, "warmup_ratio"),
        (VIT, {"label_smoothing": 1.0}, "label_smoothing"),
        (VIT, {"labels": ["a"]}, "labels has 1"),
        ({**VIT, "hiden_size": 3}, {}, "hiden_size"),
        ({**VIT, "hidden_act": "nope"}, {}, "cannot build vit"),
        ({**VIT, "model_type": "nope"}, {}, "'nope'"),
        ({"library": "timm", "architecture": "nope"}, {}, "'nope'"),
        ({**TIMM, "embed_dim": 2**21}, {}, "needs at least .* but this machine has .*; expected a smaller model"),
        ({**TIMM, "depth": 10**9}, {}, r"depth is 1e\+09, but at most 10,000 was expected"),
        ({"library": "keras"}, {}, "keras"),
    ],
)
def test_wrong_values_are_one_sentence(model: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    """The argument is named, with what was expected."""
    with pytest.raises(InputError, match=message):
        ImageClassification(model, **{"num_classes": 10, **arguments})


def colours(folder: Path) -> Images:
    """A folder of images by class, cats and dogs, a cat more in training."""
    for split, name, count in (("train", "cat", 3), ("train", "dog", 2), ("test", "cat", 1), ("test", "dog", 1)):
        (folder / split / name).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (8, 8), (index, 0, 0)).save(folder / split / name / f"{index}.png")
    return Images(str(folder), image_size=8, augment=False)


def test_classes_in_another_order_are_refused(tmp_path: Path) -> None:
    """A folder sorts its classes; a model with the same names in another order would be exported with wrong ones."""
    description = {**VIT, "num_channels": 3}
    data = colours(tmp_path / "pets")
    with pytest.raises(InputError, match="class 0 of the data pets is 'cat', but 'dog' of the model"):
        trainer(tmp_path).fit(ImageClassification(description, 2, labels=["dog", "cat"]), datamodule=data)
    trainer(tmp_path).fit(ImageClassification(description, 2, labels=["cat", "dog"]), datamodule=data)


def test_class_numbers_without_names_fit_any_names(tmp_path: Path) -> None:
    """Numbers alone, as in plain Parquet files, are taken as they are under the names of the model."""
    seed_everything(0)
    names = [f"digit {index}" for index in range(12)]
    task, data = ImageClassification(VIT, 12, labels=names), Digits()
    (scores,) = trainer(tmp_path).validate(task, datamodule=data, verbose=False)
    with torch.no_grad():
        right = [task(batch).argmax(-1) == batch["labels"] for batch in data.val_dataloader()]
    assert scores["val/accuracy"] == pytest.approx(float(torch.cat(right).double().mean()), abs=1e-6)
    assert list(task.model.config.id2label.values()) == names


def test_class_weights_follow_the_training_images(tmp_path: Path) -> None:
    """``mean(n) / n``, by hand: three cats and two dogs; a class of the model that the data lack weighs 1."""
    task = ImageClassification({**VIT, "num_channels": 3}, 2, class_weights="inverse")
    trainer(tmp_path).fit(task, datamodule=colours(tmp_path / "pets"))
    assert task.weights is not None
    assert task.weights.tolist() == pytest.approx([2.5 / 3, 2.5 / 2])
    task = ImageClassification(VIT, 12, class_weights="sqrt")
    data = Digits(classes=[0, 7])
    trainer(tmp_path).fit(task, datamodule=data)
    zeros, sevens = (int((data.train_set.labels == digit).sum()) for digit in (0, 7))
    mean = (zeros**0.5 + sevens**0.5) / 2
    assert task.weights is not None
    assert task.weights[[0, 1, 7, 11]].tolist() == pytest.approx([mean / zeros**0.5, 1, mean / sevens**0.5, 1])


def test_more_classes_in_the_data_than_in_the_head_is_refused(tmp_path: Path) -> None:
    """Before training, not as an index error in the loss."""
    with pytest.raises(InputError, match="has 10 classes, but num_classes of the model is 3"):
        trainer(tmp_path).fit(ImageClassification(VIT, 3), datamodule=Digits())


@pytest.mark.parametrize("given", [[1.0, 3.0], (1, 3), torch.tensor([1.0, 3.0])])
def test_class_weights_are_any_sequence_of_numbers(given: Any) -> None:
    task = ImageClassification({**VIT, "num_channels": 3}, 2, class_weights=given)
    assert task.weights is not None
    assert task.weights.tolist() == [1.0, 3.0]


def test_labels_of_a_lightning_file_are_compared_and_stored(tmp_path: Path) -> None:
    """A head that was trained for other labels, or for the same in another order, is no head for these."""
    for name, labels in (("named", ["cat", "dog"]), ("unnamed", None)):
        model = ImageClassification(VIT, 2, labels=labels).model
        state = {f"model.{key}": tensor for key, tensor in model.state_dict().items()}
        torch.save({"state_dict": state, "fusionlab": checkpoints.describe(model)}, tmp_path / f"{name}.ckpt")
    with pytest.raises(InputError, match=r"was trained for the labels cat, dog, but model.labels is dog, cat"):
        ImageClassification(str(tmp_path / "named.ckpt"), 2, labels=["dog", "cat"])
    for name in ("named", "unnamed"):
        task = ImageClassification(str(tmp_path / f"{name}.ckpt"), 2, labels=["cat", "dog"])
        config: Any = task.model.config
        assert config.id2label == {0: "cat", 1: "dog"}
    assert ImageClassification(str(tmp_path / "named.ckpt"), 2).model.config.id2label[0] == "cat"  # type: ignore[union-attr]
