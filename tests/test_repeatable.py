"""Data that draw at random give the same batches in every pass of matching and merging, and others to training."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset
from transformers import BertConfig, BertForMaskedLM

import fusionlab
from fusionlab.data import Images, LanguageModelling
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.inputs import Inputs
from fusionlab.repeatable import repeatable

DRAWS = {
    "torch": lambda: torch.rand(2),
    "numpy": lambda: torch.tensor(np.random.random(2)),
    "python": lambda: torch.tensor([random.random() for _ in range(2)]),
}


class Noisy(Dataset[Any]):
    """Six examples, with noise of one source of draws."""

    def __init__(self, source: str) -> None:
        self.draw = DRAWS[source]

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"place": torch.tensor(place), "noise": self.draw()}


def noise(loader: Any, name: str = "noise") -> torch.Tensor:
    return torch.cat([batch[name] for batch in loader])


@pytest.mark.parametrize("source", DRAWS)
def test_every_pass_draws_the_same_and_nothing_outside_does(source: str) -> None:
    """Whichever library a data set draws by; each example has draws of its own, and another seed has others."""
    loader = repeatable(DataLoader(Noisy(source), batch_size=4))
    first = noise(loader)
    assert torch.equal(noise(loader), first)
    assert len(first.unique()) == 12
    assert not torch.equal(noise(repeatable(DataLoader(Noisy(source), batch_size=4), seed=1)), first)
    assert torch.equal(noise(loader, "place"), torch.arange(6))

    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = DRAWS[source]()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    assert len(loader.dataset[2]) == 2  # not by iterating, which draws a seed for workers
    assert torch.equal(DRAWS[source](), expected)


def test_what_collating_draws_is_the_same_too() -> None:
    def collate(examples: list[Any]) -> dict[str, torch.Tensor]:
        return {"noise": torch.rand(len(examples), 2)}

    plain = DataLoader(Noisy("torch"), batch_size=4, collate_fn=collate)
    loader = repeatable(plain)
    assert torch.equal(noise(loader), noise(loader))
    assert not torch.equal(noise(plain), noise(plain))


def test_parts_and_unions_are_the_same_in_every_pass() -> None:
    """A shuffled loader keeps its order's sampler; parts and unions of its data are collated as it does."""
    loader = repeatable(DataLoader(Noisy("numpy"), batch_size=2, shuffle=True))
    assert sorted(noise(loader, "place").tolist()) == list(range(6))
    for data in (Subset(loader.dataset, [4, 1, 3]), ConcatDataset([loader.dataset, loader.dataset])):
        part = DataLoader(data, batch_size=2, collate_fn=loader.collate_fn)
        assert torch.equal(noise(part), noise(part))


def test_what_makes_no_batches_of_examples_is_left_as_it_is() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[int]:
            return itertools.count()

    for given in ([{"x": torch.ones(1)}], DataLoader(Endless()), DataLoader(Noisy("torch"), batch_size=None)):
        assert repeatable(given) is given


@pytest.fixture
def photos(tmp_path: Path) -> Images:
    """Two classes of images on disk, which training mirrors and shifts."""
    from PIL import Image  # noqa: PLC0415

    for split in ("train", "test"):
        for label in ("one", "two"):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for place in range(4):
                pixels = np.random.default_rng(place).integers(0, 255, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{place}.png")
    return Images(str(tmp_path / "photos"), image_size=8, mean=[0.5] * 3, std=[0.5] * 3, batch_size=4)


def test_augmented_images_are_the_same_to_every_model(photos: Images) -> None:
    """Training goes on seeing others."""
    inputs = Inputs.of([photos], 2)
    assert inputs is not None
    assert torch.equal(noise(inputs.shared, "pixel_values"), noise(inputs.shared, "pixel_values"))
    training = photos.train_dataloader()
    assert isinstance(training, DataLoader)
    in_order = DataLoader(training.dataset, batch_size=4, collate_fn=training.collate_fn)
    torch.manual_seed(0)
    assert not torch.equal(noise(in_order, "pixel_values"), noise(in_order, "pixel_values"))


def test_masked_language_models_are_matched_by_activations(tmp_path: Path) -> None:
    """Words are hidden anew in every epoch of training; two models are compared where the same ones are."""
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    data = LanguageModelling(
        str(text), tokenizer="bytes", masked=True, max_length=16, val_split=None, test_split=None, test_size=0.2
    )
    config = BertConfig(
        vocab_size=len(byte_tokenizer()),
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    model, other = BertForMaskedLM(config).eval(), BertForMaskedLM(config).eval()
    other.load_state_dict(model.state_dict())
    layer, order = other.bert.encoder.layer[0], torch.randperm(12)
    with torch.no_grad():
        layer.intermediate.dense.weight.copy_(layer.intermediate.dense.weight[order])
        layer.output.dense.weight.copy_(layer.output.dense.weight[:, order])
    data.prepare_data()
    data.setup("fit")
    one, twin = fusionlab.align([model, other], preset="activations", data=data.train_dataloader())
    for name, weight in twin.state_dict().items():
        torch.testing.assert_close(weight, one.state_dict()[name], msg=name)
