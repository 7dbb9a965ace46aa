"""Inputs that matching and merging may look at: fixed order, draws by seed, one set for each model or one for all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import BertConfig, BertForMaskedLM

import fusionlab
from fusionlab.data import Digits
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from fusionlab.inputs import Inputs, gives_batches
from tests.commands.small import vit


def pixels(batches: object) -> torch.Tensor:
    return torch.cat([batch["pixel_values"] for batch in batches])  # type: ignore[attr-defined]


def test_training_data_in_a_fixed_order() -> None:
    """All training images, as the data set has them however the loader shuffles; the validation images apart."""
    module = Digits(val_size=100)
    inputs = Inputs.of([module], 2)
    assert inputs is not None
    assert inputs.is_shared
    assert inputs.own[0] is inputs.shared
    assert torch.equal(pixels(inputs.shared), module.train_set.pixel_values)
    assert torch.equal(pixels(inputs.held_out[0]), module.val_set.pixel_values)
    assert "1300 training samples of digits" in inputs.described


def test_a_draw_follows_the_seed() -> None:
    """Same seed, same samples; another seed, others; all of them training images."""
    module = Digits()
    first, again, other = (Inputs.of([module], 2, 50, seed) for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert len(pixels(first.shared)) == 50
    assert torch.equal(pixels(first.shared), pixels(again.shared))
    assert not torch.equal(pixels(first.shared), pixels(other.shared))
    known = {tuple(image.flatten().tolist()) for image in module.train_set.pixel_values}
    assert all(tuple(image.flatten().tolist()) in known for image in pixels(first.shared))


def test_batches_of_each_model_are_shared_in_turn() -> None:
    """The first few of the shared ones are of all models; none is lost where one has more."""
    own = [[{"x": torch.tensor([10 * model + place])} for place in range(count)] for model, count in enumerate((3, 1))]
    inputs = Inputs.from_batches(own, 2)
    assert [int(batch["x"]) for batch in inputs.shared] == [0, 10, 1, 2]
    assert [[int(batch["x"]) for batch in batches] for batches in inputs.own] == [[0, 1, 2], [10]]


def test_one_module_for_each_model() -> None:
    """Each model has its own, and all of them together are shared."""
    modules = [Digits(classes=[0, 1]), Digits(classes=[2])]
    inputs = Inputs.of(modules, 2)
    assert inputs is not None
    assert not inputs.is_shared
    for own, module in zip(inputs.own, modules, strict=True):
        assert torch.equal(pixels(own), module.train_set.pixel_values)
    together = torch.cat([module.train_set.pixel_values for module in modules])
    assert sorted(pixels(inputs.shared).sum((1, 2, 3)).tolist()) == sorted(together.sum((1, 2, 3)).tolist())
    three = Inputs.of(modules, 3)
    assert three is not None
    assert three.is_shared, "where there is another number of modules, all models get all"


def test_nothing_to_look_at() -> None:
    """No module, no inputs; a number of samples below one is refused."""
    assert Inputs.of([], 2) is None
    with pytest.raises(InputError, match="samples is 0; expected at least 1"):
        Inputs.of([Digits()], 2, 0)


class Stream(IterableDataset):
    """Images that come one after another, nobody knows how many."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __iter__(self) -> Iterator[Any]:
        return iter(self.images)


class Streams(Digits):
    """Digits of which some are streams."""

    def __init__(self, *streams: str) -> None:
        super().__init__(val_size=100)
        self.streams = streams

    def train_dataloader(self) -> DataLoader:
        loader = super().train_dataloader()
        return DataLoader(Stream(loader.dataset), batch_size=50) if "train" in self.streams else loader

    def val_dataloader(self) -> DataLoader:
        loader = super().val_dataloader()
        return DataLoader(Stream(loader.dataset), batch_size=50) if "val" in self.streams else loader


def test_streams() -> None:
    """To choose by they are as good as any data; to draw samples of they are refused."""
    module = Streams("val")
    inputs = Inputs.of([module], 2)
    assert inputs is not None
    assert torch.equal(pixels(inputs.held_out[0]), module.val_set.pixel_values)
    with pytest.raises(InputError, match="Stream are a stream, of which no samples can be drawn; expected a data set"):
        Inputs.of([Streams("train")], 2)


def test_loaders_that_give_batches() -> None:
    """One of several is enough, and one that does not say how many it has counts."""
    some, none = DataLoader([1]), DataLoader([])  # type: ignore[arg-type, var-annotated]
    stream: DataLoader = DataLoader(Stream([]))
    given = (some, stream, [none, some], [stream], none, [none], [], None)
    assert [gives_batches(loaders) for loaders in given] == [True] * 4 + [False] * 4


def test_from_batches() -> None:
    """A list of batches is for all models, a list of lists for each; anything else is refused."""
    batch = {"pixel_values": torch.zeros(2, 1, 8, 8)}
    assert Inputs.from_batches([batch], 2).is_shared
    own = Inputs.from_batches([[batch], [batch, batch]], 2)
    assert [len(list(batches)) for batches in own.own] == [1, 2]
    assert len(list(own.shared)) == 3
    assert Inputs.from_batches(own, 2) is own
    for data, message in (
        (iter([batch]), "gone through only once"),
        ([], "holds no batch"),
        ([[batch]], "1 set of batches for 2 models"),
        ("reviews.csv", r"data is a path \(reviews.csv\); expected batches, .*fusionlab.data.own_data"),
        (Digits(), "data is of the class Digits; expected batches, such as module.train_dataloader"),
        (3, "data is of the class int; expected batches"),
        ([torch.ones(2, 3)], "data holds a Tensor; expected batches as mappings"),
        ([1, 2], "holds a int"),
        ([iter([batch]), [batch]], "gone through only once"),
    ):
        with pytest.raises(InputError, match=message):
            Inputs.from_batches(data, 2)


def test_synthetic() -> None:
    """As many as wanted, by the seed, and said to be synthetic."""
    first, again, other = (Inputs.synthetic([vit(0), vit(1)], 30, seed) for seed in (0, 0, 1))
    assert pixels(first.shared).shape == (30, 1, 8, 8)
    assert torch.equal(pixels(first.shared), pixels(again.shared))
    assert not torch.equal(pixels(first.shared), pixels(other.shared))
    assert "no real data" in first.described


def test_the_tokenizer_beside_a_model_is_read(tmp_path: Path) -> None:
    """A model that fills in hidden tokens writes by the mask of the folder it was loaded from, and not without one."""
    tokenizer = byte_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=20, **sizes))
    model.save_pretrained(tmp_path / "alone")
    alone = fusionlab.load(tmp_path / "alone")
    model.save_pretrained(tmp_path / "both")
    tokenizer.save_pretrained(tmp_path / "both")
    written: Any = fusionlab.load(tmp_path / "both")
    with torch.no_grad():
        written.cls.predictions.decoder.bias[7] = 50.0

    def share(model: Any) -> float:
        (batch,) = Inputs.synthetic([model], 64, length=12).shared
        return float((batch["input_ids"] == 7).float().mean())

    assert share(alone) < 0.05
    assert share(written) > 0.5
    (tmp_path / "both" / "tokenizer.json").write_text("{")
    assert share(written) < 0.05
