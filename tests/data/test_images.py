"""Image data sets from files: every layout gives the same batches, every mistake is one sentence."""

import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fusionlab.data import Images
from fusionlab.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def encoded(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((10, 10, 3), value, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def parquet(path: Path, labels: list[Any], split: list[str] | None = None) -> Path:
    columns: dict[str, Any] = {"image": [encoded(20 * row) for row in range(len(labels))], "label": labels}
    if split is not None:
        columns["split"] = split
    datasets.Dataset.from_dict(columns).to_parquet(str(path))
    return path


def test_one_parquet_file_with_a_split_column(tmp_path: Path) -> None:
    """Encoded bytes become normalised tensors of the size asked for; the column chooses the splits."""
    file = parquet(tmp_path / "images.parquet", [0, 1, 2, 1], ["train", "train", "train", "test"])
    data = Images(str(file), split_column="split", image_size=8, batch_size=3, augment=False)
    data.setup("fit")
    assert data.num_classes == 3
    assert data.name == "images"
    batch: Any = next(iter(data.test_dataloader()))
    assert batch["pixel_values"].shape == (1, 3, 8, 8)
    assert torch.allclose(batch["pixel_values"], torch.tensor((60 / 255 - 0.5) / 0.5))
    assert batch["labels"].tolist() == [1]
    assert sorted(next(iter(data.train_dataloader()))["labels"].tolist()) == [0, 1, 2]


def test_limit_keeps_every_class_known(tmp_path: Path) -> None:
    """A quick subset has as many classes as the whole, and images keep their labels."""
    file = parquet(tmp_path / "images.parquet", list(range(8)))
    data = Images(str(file), test_split=None, image_size=8, limit=2, val_size=3, augment=False)
    data.setup("fit")
    assert data.num_classes == 8
    batch: Any = next(iter(data.train_dataloader()))
    shades = (batch["pixel_values"][:, 0, 0, 0] * 0.5 + 0.5) * 255 / 20
    assert torch.allclose(shades, batch["labels"].float(), atol=1e-3)


def test_folder_of_images_by_class(tmp_path: Path) -> None:
    """Sub-folders name the classes."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            for index in range(3):
                (folder / f"{index}.png").write_bytes(encoded(index))
    data = Images(str(tmp_path / "pets"), image_size=8, val_size=2, limit=2)
    data.setup("fit")
    assert data.class_names == ["cat", "dog"]
    assert [len(data._sets[split].labels) for split in ("train", "val", "test")] == [2, 2, 2]
    assert next(iter(data.train_dataloader()))["pixel_values"].shape == (2, 3, 8, 8)


def test_names_in_another_order_than_the_folders(tmp_path: Path) -> None:
    """Folders number their classes by the alphabet; a model need not."""
    for name, value in (("cat", 0), ("dog", 200)):
        (tmp_path / "animals" / name).mkdir(parents=True)
        (tmp_path / "animals" / name / "0.png").write_bytes(encoded(value))
    for names in (["cat", "dog"], ["dog", "cat"]):
        data = Images(str(tmp_path / "animals"), test_split="train", image_size=8, class_names=names, augment=False)
        data.setup("fit")
        (batch,) = data.test_dataloader()
        dark = batch["pixel_values"].mean((1, 2, 3)) < 0
        assert [names[label] for label in batch["labels"]] == ["cat" if one else "dog" for one in dark]


def test_normalisation_from_a_preprocessor(tmp_path: Path) -> None:
    """A checkpoint's own preprocessor gives size, mean and deviation; what is given wins."""
    text = '{"size": {"height": 6, "width": 6}, "image_mean": [0.1, 0.1, 0.1], "image_std": [0.2, 0.2, 0.2]}'
    (tmp_path / "preprocessor_config.json").write_text(text)
    chosen = Images("any", preprocessor=str(tmp_path), std=[0.3]).preprocessing
    assert (chosen.image_size, list(chosen.mean or []), list(chosen.std or [])) == (6, [0.1, 0.1, 0.1], [0.3])
    with pytest.raises(InputError, match="preprocessor_config"):
        Images("any", preprocessor=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"size": "x"}, "size of images is 'x'; expected pixels"),
        ({"size": 2**40}, "size of images is 1099511627776; expected pixels, from 1 to 16,384"),
        ({"size": {"height": 0.5}}, r"size of images is 0\.5"),
        ({"size": True}, "size of images is True"),
        ({"crop_size": -1, "do_center_crop": True}, "size of images is -1"),
        ({"image_mean": "x"}, "mean of images is 'x'; expected a number for each channel"),
        ({"image_mean": ["a", 1, None]}, "mean of images is"),
        ({"image_mean": []}, r"mean of images is \[\]"),
        ({"image_std": 3}, "standard deviation of images is 3"),
        ({"image_std": [0.5, float("nan"), 0.5]}, "standard deviation of images is"),
        ({"image_std": [0.5, 0, 0.5]}, r"standard deviation of images is .*; expected numbers above 0"),
    ],
)
def test_a_preprocessor_of_odd_values_is_refused(tmp_path: Path, told: dict[str, Any], message: str) -> None:
    """Any value in the file may be of any type; timm's description has the same three."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match=rf"preprocessor_config\.json: the {message}"):
        Images("any", preprocessor=str(tmp_path))
    (tmp_path / "preprocessor_config.json").unlink()
    known = {"image_mean": "mean", "image_std": "std"}
    size = {"input_size": next(iter(told.values()))} if not known.keys() & told.keys() else {"input_size": [3, 8, 8]}
    timm = {"architecture": "x", "pretrained_cfg": {**size, **{known[k]: v for k, v in told.items() if k in known}}}
    (tmp_path / "config.json").write_text(json.dumps(timm))
    with pytest.raises(InputError, match=r"config\.json: the "):
        Images("any", preprocessor=str(tmp_path))


def test_the_last_of_several_sides_counts(tmp_path: Path) -> None:
    """timm tells channels, height and width."""
    (tmp_path / "config.json").write_text('{"architecture": "x", "pretrained_cfg": {"input_size": [3, 8, 16]}}')
    assert Images("any", preprocessor=str(tmp_path)).preprocessing.image_size == 16


@pytest.mark.parametrize(
    ("labels", "arguments", "message"),
    [
        ([0, 1], {"label_column": "kind"}, "no column 'kind'; it has image, label"),
        ([0, 1], {"image_column": "photo"}, "no column 'photo'"),
        ([0, -1], {}, r"holds -1 in row 1 of split 'train', but labels from 0 to 0"),
        ([0, 2], {"class_names": ["a", "b"]}, r"holds 2 in row 1 .* from 0 to 1"),
        (["a", "b"], {}, r"holds 'a' in row 0"),
        ([0.5, 1.0], {}, r"holds 0\.5 in row 0"),
        ([0, 1], {"split_column": "part"}, "no column 'part'"),
        ([0, 1], {"train_split": "dev"}, "dev"),
        ([0, 1], {"val_size": 2}, "val_size is 2"),
        ([0, 1], {"std": [0.5, float("nan"), 0.5]}, r"data\.std is .*, but values above 0 were expected"),
        ([], {}, "split 'train' holds no row; expected at least one"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, labels: list[Any], arguments: dict[str, Any], message: str) -> None:
    """The column, the row and the range are named."""
    file = parquet(tmp_path / "x.parquet", labels)
    with pytest.raises(InputError, match=message) as caught:
        Images(str(file), **{"test_split": None, **arguments}).setup("fit")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "message"),
    [(None, "has a row without one"), ("https://example.org/x.png", r"names https://example\.org/x\.png; expected")],
)
def test_images_that_are_not_there(tmp_path: Path, place: str | None, message: str) -> None:
    """A row without an image, and one whose image somebody else holds: nothing is fetched."""
    rows = [{"bytes": encoded(20), "path": None}, {"bytes": None, "path": place}]
    images = pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    pq.write_table(pa.table({"image": images, "label": [0, 1]}), tmp_path / "images.parquet")
    data = Images(str(tmp_path / "images.parquet"), test_split=None, image_size=8, batch_size=2, augment=False)
    data.setup("fit")
    with pytest.raises(InputError, match=message):
        next(iter(data.train_dataloader()))


def test_class_numbers_beyond_64_bits_with_a_sign(tmp_path: Path) -> None:
    """As a column of unsigned numbers may have them."""
    images = [{"bytes": encoded(20), "path": None}] * 2
    labels = pa.array([0, 2**63], pa.uint64())
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "images.parquet")
    with pytest.raises(InputError, match="holds 9223372036854775808 in row 1"):
        Images(str(tmp_path / "images.parquet"), test_split=None).setup("fit")


def test_missing_path(tmp_path: Path) -> None:
    """A folder that is not there is not taken for a hub id."""
    with pytest.raises(InputError, match="no such file or folder"):
        Images(str(tmp_path / "nowhere" / "at" / "all")).setup("fit")
