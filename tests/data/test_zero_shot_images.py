"""Images beside the texts of their classes: each text is that of its class, and a batch is read with one set."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoModelForZeroShotImageClassification,
    BertConfig,
    BertModel,
    CLIPModel,
    Siglip2Config,
    Siglip2Model,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES as ZERO_SHOT

from fusionlab import checkpoints
from fusionlab.data import OwnData, ZeroShotImages, own_data
from fusionlab.errors import InputError
from fusionlab.evaluation.task_scores import compares_images
from fusionlab.forward import class_texts, forward, logits
from fusionlab.inputs import Inputs
from tests.data.colours import COLOURS, WIDTH, WORDS, clip, images

SIZE: dict[str, Any] = {"image_size": 8, "train_split": None, "test_split": "train"}


def batch_of(data: Any) -> dict[str, torch.Tensor]:
    (batch,) = data.test_dataloader()
    return batch


def test_texts_are_those_of_the_classes(tmp_path: Path) -> None:
    """In the order of the labels, with spaces for underscores, once for each image."""
    data = ZeroShotImages(images(tmp_path / "x"), clip(tmp_path / "clip"), **SIZE)
    data.setup("test")
    assert data.class_names == sorted(COLOURS)
    batch = batch_of(data)
    assert batch["pixel_values"].shape == (24, 3, 8, 8)
    assert batch["input_ids"].shape == (24, 4, 9)
    assert (batch["input_ids"] == batch["input_ids"][:1]).all()
    read = data.tokenizer.batch_decode(batch["input_ids"][0], skip_special_tokens=True)
    assert read[0] == "a photo of a dark red ."
    assert read[1:] == ["a photo of a green .", "a photo of a light blue .", "a photo of a white ."]
    assert batch["attention_mask"][0].sum(1).tolist() == [9, 8, 9, 8]


def test_texts_of_ones_own_and_of_one_length(tmp_path: Path) -> None:
    """A template, and as many tokens as a model was trained with."""
    place, model = images(tmp_path / "x"), clip(tmp_path / "clip")
    data = ZeroShotImages(place, model, template="{} of a", pad_to=12, **SIZE)
    data.setup("test")
    ids = batch_of(data)["input_ids"][0]
    assert ids.shape == (4, 12)
    assert data.tokenizer.batch_decode(ids, skip_special_tokens=True)[2] == "light blue of a"
    short = ZeroShotImages(place, model, max_length=5, **SIZE)
    short.setup("test")
    assert batch_of(short)["input_ids"].shape == (24, 4, 5)


def test_a_model_reads_the_texts_once(tmp_path: Path) -> None:
    """Its logits are the similarities of each image to each text, as transformers computes them itself."""
    model: Any = checkpoints.load(clip(tmp_path / "clip"))
    assert isinstance(model, CLIPModel)
    data = ZeroShotImages(images(tmp_path / "x"), str(tmp_path / "clip"), **SIZE)
    data.setup("test")
    batch = batch_of(data)
    texts = class_texts(batch)
    assert texts is not None
    with torch.no_grad():
        expected = model(texts, batch["pixel_values"], batch["attention_mask"][0]).logits_per_image
        assert expected.shape == (24, 4)
        torch.testing.assert_close(logits(model, batch), expected)
        again = forward(model, {"pixel_values": batch["pixel_values"], "input_ids": texts})
    torch.testing.assert_close(again.logits_per_image, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"template": "a photo"}, r"data.template is 'a photo'; expected a text with \{\} once"),
        ({"template": "{} and {}"}, r"expected a text with \{\} once"),
        ({"max_length": 0}, "data.max_length is 0, but at least 1"),
        ({"pad_to": 0}, "data.pad_to is 0, but at least 1"),
    ],
)
def test_refusals(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ZeroShotImages(images(tmp_path / "x"), "bytes", **SIZE, **given)


def test_a_folder_is_all_that_a_user_has_to_name(tmp_path: Path) -> None:
    """What was guessed is said; the template is an option."""
    model = checkpoints.read(clip(tmp_path / "clip"))
    data, told = OwnData(images(tmp_path / "x", count=10)).fitted(model)
    assert isinstance(data, ZeroShotImages)
    assert "label from `label` (dark_red, green, light_blue, white)" in told
    assert "each class as the text 'a photo of a {}.'" in told
    assert "--data.template" in told
    data.setup("test")
    batch = batch_of(data)
    assert batch["pixel_values"].shape == (8, 3, 8, 8), "a fifth is held out"
    own: Any = own_data(str(tmp_path / "x"), tmp_path / "clip", template="{}")
    assert own.class_texts() == ["dark red", "green", "light blue", "white"]


def table(path: Path, labels: list[Any], **features: Any) -> str:
    """A Parquet file of white images with labels."""
    rows = {"image": [Image.new("RGB", (8, 8))] * len(labels), "label": labels}
    found = datasets.Dataset.from_dict(rows, datasets.Features(image=datasets.Image(), **features))
    found.to_parquet(path)
    return str(path)


def test_names_in_a_table(tmp_path: Path) -> None:
    """Words are names of classes, in the order of the alphabet or in that which is given; numbers alone are not."""
    clip(tmp_path / "clip")
    words = table(tmp_path / "words.parquet", ["white", "green", "white", "green"], label=datasets.Value("string"))
    data: Any = own_data(words, tmp_path / "clip", test_size=0.5)
    data.setup("test")
    assert data.class_names == ["green", "white"]
    turned: Any = own_data(words, tmp_path / "clip", test_size=0.5, label_values=["white", "green"])
    turned.setup("test")
    assert turned.class_names == ["white", "green"]
    assert turned._sets["test"].labels.tolist() == [1 - label for label in data._sets["test"].labels.tolist()]
    known = datasets.ClassLabel(names=["white", "green"])
    named: Any = own_data(table(tmp_path / "named.parquet", [0, 1, 0, 1], label=known), tmp_path / "clip")
    assert named.class_names == ["white", "green"]
    numbers = table(tmp_path / "numbers.parquet", [0, 1, 0, 1], label=datasets.Value("int64"))
    with pytest.raises(InputError, match=r"no column holds names of classes .*'label' holds 0, 1.* a folder of images"):
        own_data(numbers, tmp_path / "clip")
    with pytest.raises(InputError, match=r"label_values names black, white, and column 'label' holds green, white"):
        own_data(words, tmp_path / "clip", label_values=["black", "white"])


def test_data_of_other_classes_never_share_a_batch(tmp_path: Path) -> None:
    """All images are there, each beside the texts of its own data set, be they as many and as long."""
    model = clip(tmp_path / "clip")
    parts = (("dark_red", "green"), ("light_blue", "white"))
    modules: list[Any] = [
        ZeroShotImages(
            images(tmp_path / str(place), names), model, image_size=8, test_split=None, augment=False, batch_size=5
        )
        for place, names in enumerate(parts)
    ]
    inputs = Inputs.of(modules, 2)
    assert inputs is not None
    own = [next(iter(batches))["input_ids"][0] for batches in inputs.own]
    assert own[0].shape == own[1].shape
    assert not torch.equal(*own)
    known = [torch.cat([batch["pixel_values"] for batch in batches]) for batches in inputs.own]
    seen = [0, 0]
    for batch in inputs.shared:
        (place,) = [place for place in (0, 1) if (batch["input_ids"] == own[place]).all()]
        for image in batch["pixel_values"]:
            assert (known[place] == image).flatten(1).all(1).any()
        seen[place] += len(batch["labels"])
    assert seen == [12, 12]


TEXTS = {**WIDTH, "vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1}
EYES = {**WIDTH, "image_size": 8, "patch_size": 4}
# Of types that have parts of other names.
PARTS: dict[str, dict[str, Any]] = {
    "altclip": {"text_config": {**TEXTS, "project_dim": 8}},
    "align": {
        "vision_config": {"image_size": 64, "width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 640},
        "projection_dim": 32,
    },
}


@pytest.mark.parametrize("kind", sorted(name for name in ZERO_SHOT if name not in ("blip-2", "siglip2", "videoprism")))
def test_every_class_reads_the_texts_once(kind: str) -> None:
    """An image alone has the logits that it has among others, and the model is known as one that takes such data."""
    torch.manual_seed(0)
    parts = {"text_config": {**TEXTS, "eos_token_id": len(WORDS) - 1}, "vision_config": EYES, "projection_dim": 8}
    config = AutoConfig.for_model(kind, **(parts | PARTS.get(kind, {})))
    # In float64, since ALIGN's untrained net makes embeddings as small as 1e-28.
    model = AutoModelForZeroShotImageClassification.from_config(config).double().eval()
    assert compares_images(model)
    size = 64 if kind == "align" else 8
    ids = torch.randint(3, len(WORDS) - 1, (4, 6))
    ids[:, -1] = len(WORDS) - 1
    batch = {"pixel_values": torch.randn(3, 3, size, size), "input_ids": ids.expand(3, -1, -1)}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    with torch.no_grad():
        together = logits(model, batch)
        alone = [logits(model, {name: value[place : place + 1] for name, value in batch.items()}) for place in range(3)]
    assert together.shape == (3, 4)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[:, 0], together[:, 1])


def test_models_that_read_one_pair_or_patches_are_something_else() -> None:
    assert not compares_images(
        Siglip2Model(Siglip2Config(text_config=TEXTS, vision_config={**WIDTH, "num_patches": 4}))
    )
    assert not compares_images(BertModel(BertConfig(**WIDTH, vocab_size=9)))
