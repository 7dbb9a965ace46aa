"""Files of statistics give back what was saved, and refuse what is not theirs."""

import json
import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.statistics import Fisher, Grams, Statistics
from fusionlab.statistics.files import FORMAT, checksum, load, save, tensors_of
from tests.statistics.passes import batched, examples_for, model_of, passed

KINDS = ("gram", "fisher", "activations")


@pytest.fixture(scope="module")
def found() -> dict[str, Statistics]:
    model = model_of("bert-sequence")
    return passed(model, batched(examples_for(model), 2), *KINDS, samples=5, gradients=True)


def assert_equal(first: Statistics, second: Statistics) -> None:
    assert type(first) is type(second)
    for field in fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, dict) and one and isinstance(next(iter(one.values())), Tensor):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one)
        else:
            assert one == other


def test_round_trip(found: dict[str, Statistics], tmp_path: Path) -> None:
    """All kinds in one file come back equal in every field, each tensor to the bit; nothing else is left behind."""
    save(found, tmp_path / "all.safetensors")
    again = load(tmp_path / "all.safetensors", model_of("bert-sequence").state_dict())
    assert set(again) == set(KINDS)
    for kind in KINDS:
        assert_equal(again[kind], found[kind])
    assert [path.name for path in tmp_path.iterdir()] == ["all.safetensors"]


def test_shared_inputs_are_stored_once(found: dict[str, Statistics], tmp_path: Path) -> None:
    """Query, key and value have one sample of what they read: one tensor in memory and in the file."""
    save([found["activations"]], tmp_path / "one.safetensors")
    assert len(load_file(tmp_path / "one.safetensors")) == len(tensors_of(found["activations"]))
    again = load(tmp_path / "one.safetensors")["activations"]
    assert len(tensors_of(again)) == len(tensors_of(found["activations"]))


def test_another_model_is_refused(found: dict[str, Statistics], tmp_path: Path) -> None:
    """The sentence names the file."""
    save(found, tmp_path / "all.safetensors")
    with pytest.raises(InputError, match=r"all\.safetensors: the gram statistics were measured on another model"):
        load(tmp_path / "all.safetensors", model_of("bert-sequence", seed=1).state_dict())


def test_fisher_information_is_of_the_models_parameters(found: dict[str, Statistics], tmp_path: Path) -> None:
    """Another name, or another shape, is none of them."""
    fisher = found["fisher"]
    assert isinstance(fisher, Fisher)
    state = model_of("bert-sequence").state_dict()
    name, diagonal = next(iter(fisher.diagonal.items()))
    rest = {other: tensor for other, tensor in fisher.diagonal.items() if other != name}
    for strange in ({"x": diagonal}, {name: diagonal.flatten()[:1]}):
        path = tmp_path / f"{next(iter(strange))}.safetensors"
        save([replace(fisher, diagonal={**rest, **strange})], path)
        with pytest.raises(InputError, match="which is no parameter of the model; expected its parameters only"):
            load(path, state)
    save([fisher], tmp_path / "sound.safetensors")
    assert load(tmp_path / "sound.safetensors", state)["fisher"].basis == fisher.basis


def test_one_file_is_of_one_model(found: dict[str, Statistics], tmp_path: Path) -> None:
    """Statistics of two models, or one kind twice, are not written into one file."""
    with pytest.raises(InputError, match="each kind once"):
        save([found["gram"], found["gram"]], tmp_path / "twice.safetensors")
    assert not list(tmp_path.iterdir())


def test_existing_file_is_kept(found: dict[str, Statistics], tmp_path: Path) -> None:
    """A file that is there stays, unless it may be replaced."""
    (tmp_path / "old.safetensors").write_text("old")
    with pytest.raises(InputError, match="exists already"):
        save(found, tmp_path / "old.safetensors")
    assert (tmp_path / "old.safetensors").read_text() == "old"
    save(found, tmp_path / "old.safetensors", overwrite=True)
    assert set(load(tmp_path / "old.safetensors")) == set(KINDS)


@pytest.mark.parametrize("value", [-1, 2.5, True, "3", None])
@pytest.mark.parametrize("field", ["examples", "rows"])
def test_numbers_that_count_nothing_are_refused(
    found: dict[str, Statistics], tmp_path: Path, field: str, value: object
) -> None:
    """Numbers of examples and rows are whole and not negative; the field is named."""
    grams = found["gram"]
    assert isinstance(grams, Grams)
    name = next(iter(grams.rows))
    changes: dict[str, Any] = {"examples": value} if field == "examples" else {"rows": {**grams.rows, name: value}}
    save([replace(grams, **changes)], tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=f"damaged at {field if field == 'examples' else f'rows of {name}'}; expected"):
        load(tmp_path / "a.safetensors")


def test_unreadable_files_are_refused(found: dict[str, Statistics], tmp_path: Path) -> None:
    """Missing, cut, ordinary tensors, another version, a tensor missing: one sentence each."""
    place = tmp_path / "stats.safetensors"
    with pytest.raises(InputError, match="not a readable file"):
        load(place)
    save([found["gram"]], place)
    # Copies: what is read stays in the file, which is about to be cut.
    tensors, content = {n: t.clone() for n, t in load_file(place).items()}, place.read_bytes()
    place.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="not a readable file"):
        load(place)
    save_file(tensors, place)
    with pytest.raises(InputError, match="no file of statistics"):
        load(place)
    save_file(tensors, place, {"format": "fusionlab statistics 0", "statistics": "{}"})
    with pytest.raises(InputError, match=f"statistics 0.*expected '{FORMAT}'"):
        load(place)
    text = json.dumps({"gram": {"fields": {}, "shared": {}}})
    save_file(tensors, place, {"format": FORMAT, "statistics": text, "checksum": checksum(text, tensors)})
    with pytest.raises(InputError, match="damaged"):
        load(place)
    save_file(tensors, place, {"format": FORMAT, "statistics": text})
    with pytest.raises(InputError, match="checksum does not fit"):
        load(place)


def test_one_changed_bit_is_noticed_wherever_it_is(found: dict[str, Statistics], tmp_path: Path) -> None:
    """In numbers, names or the description: what remains is a file as sound as any other."""
    place = tmp_path / "stats.safetensors"
    save(found, place)
    content = place.read_bytes()
    draw = random.Random(0)
    # Past the length of the header, in which nearly every change makes the whole file unreadable.
    for _ in range(60):
        byte, bit = draw.randrange(8, len(content)), draw.randrange(8)
        place.write_bytes(content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :])
        with pytest.raises(InputError):
            load(place)
    place.write_bytes(content)
    assert load(place).keys() == found.keys()
