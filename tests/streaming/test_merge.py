"""A streamed merge is the merge in memory, for every method that can be streamed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method, merge_states, methods
from fusionlab.streaming import Recipe, stream_merge
from tests.streaming.folders import near, random_tensors, read, write

STREAMED = [name for name in methods() if find_method(name).unit != "model"]
GIVEN: dict[str, list[dict[str, Any]]] = {
    "breadcrumbs": [{}, {"density": [0.8, 0.1, 0.4]}],
    "consensus": [{}, {"combination": "ties", "threshold": 0.2}],
    "dare": [{}, {"density": 0.3, "combination": "ties"}, {"density": [0.8, 0.1, 0.4]}],
    "pcb": [{"ratio": 0.3}],
    "slerp": [{"t": 0.2}],
    "task_arithmetic": [{"lambda_": 0.7}],
    "wudi": [{"steps": 2}, {"solver": "exact"}],
    "ties": [{}, {"density": 0.6, "lambda_": 0.5}, {"density": 1.0}, {"density": [0.9, 0.2, 0.5]}],
}
# One of each unit of work: these are tried with every floating point type, the others with one of two by turns.
EVERY_TYPE = ("simple", "ties", "slerp", "tsv_m")
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FIRST = [(method, GIVEN.get(method, [{}])[0]) for method in EVERY_TYPE]
CASES = [(method, given) for method in STREAMED for given in GIVEN.get(method, [{}])]


def made(folder: Path, dtype: torch.dtype, count: int) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """A base and models near it, written as `base`, `0`, `1` and so on."""
    base = random_tensors(5, dtype)
    models = [near(base, seed) for seed in range(count)]
    for seed, model in enumerate(models):
        model["norm.running_var"] = model["norm.running_var"] + seed
    return base, models


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype) -> None:
    """The same types and shapes, and numbers to a rounding or two; what is no number is equal."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        if not tensor.is_floating_point():
            assert torch.equal(found[name], tensor), name
            continue
        # A merge is a sum of numbers of order one.
        least = 4 * max(torch.finfo(tensor.dtype).eps, torch.finfo(dtype).eps)
        torch.testing.assert_close(found[name].double(), tensor.double(), rtol=least, atol=least, msg=name)


def test_the_methods_that_stream() -> None:
    """All that need neither statistics nor a forward pass, nor the layers of a model."""
    by_number = {"simple", "task_arithmetic", "ties", "dare", "consensus", "pcb"}
    spectral = {"tsv_m", "iso_c", "iso_cts", "wudi"}
    others = {"slerp", "karcher", "stock", "breadcrumbs", "della", "sce", "knots", "ace"}
    assert set(STREAMED) == by_number | spectral | others


@pytest.mark.parametrize(
    ("method", "given", "dtype"),
    [
        (*case, dtype)
        for place, case in enumerate(CASES)
        for dtype in (TYPES if case in FIRST else TYPES[place % 2 : place % 2 + 1])
    ],
    ids=str,
)
def test_equals_the_merge_in_memory(tmp_path: Path, method: str, given: dict[str, Any], dtype: torch.dtype) -> None:
    """The same tensors and distances, with any weights, whatever the sizes of tensors and the first model's shards."""
    base, models = made(tmp_path, dtype, 2 if method == "slerp" else 3)
    # A position between two models stands in the place of their weights.
    weights = merge_weights(None if "t" in given else [1.0, 2.0, 0.5][: len(models)], len(models))
    chosen = find_method(method)
    needs_base = "base" in chosen.requires(**given)
    stored = [write(tmp_path / str(i), model, files=2 - i % 2) for i, model in enumerate(models)]
    of_base = write(tmp_path / "base", base) if needs_base else None
    out = tmp_path / "out"
    out.mkdir()
    done: list[int] = []
    streamed = stream_merge(stored, of_base, Recipe(chosen, given, weights, seed=3), out, advance=done.append)
    expected = merge_states(models, method, weights, base=base if needs_base else None, seed=3, **given)
    found = read(out)
    assert_same(found, expected, dtype)
    assert sorted(file.name for file in out.iterdir()) == sorted(
        file.name for file in (tmp_path / "0").iterdir() if "safetensors" in file.name
    )
    assert streamed.averaged
    for distance, model in zip(streamed.distances, models, strict=True):
        assert distance == pytest.approx(parameter_distance(model, found), rel=1e-5)
    assert sum(done) == sum(tensor.numel() * tensor.itemsize for tensor in found.values())


def test_other_seeds_other_masks(tmp_path: Path) -> None:
    """One seed gives one merge, twice; another one another."""
    base, models = made(tmp_path, torch.float32, 2)
    stored = [write(tmp_path / str(i), model) for i, model in enumerate(models)]
    of_base = write(tmp_path / "base", base)
    found = []
    for place, seed in enumerate((1, 1, 2)):
        out = tmp_path / f"out{place}"
        out.mkdir()
        stream_merge(stored, of_base, Recipe(find_method("dare"), {}, [0.5, 0.5], seed), out)
        found.append(read(out)["table"])
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


@pytest.mark.parametrize("chosen", [None, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_types(tmp_path: Path, chosen: torch.dtype | None) -> None:
    """Each tensor in the widest type that a model has it in, or all in the one asked for; integers stay."""
    first = random_tensors(1, torch.bfloat16) | {"scale": torch.tensor(0.5, dtype=torch.float32)}
    second = near(first, 2, torch.float16) | {"b.bias": first["b.bias"] + 1}
    stored = [write(tmp_path / "0", first), write(tmp_path / "1", second)]
    out = tmp_path / "out"
    out.mkdir()
    stream_merge(stored, None, Recipe(find_method("simple"), {}, [0.25, 0.75], dtype=chosen), out)
    for name, tensor in read(out).items():
        if not first[name].is_floating_point():
            assert tensor.dtype == first[name].dtype
            continue
        wide = torch.bfloat16 if name == "b.bias" else torch.float32
        assert tensor.dtype == (chosen or wide), name
        exact = 0.25 * first[name].double() + 0.75 * second[name].double()
        least = 2 * max(torch.finfo(tensor.dtype).eps, torch.finfo(torch.float32).eps)
        torch.testing.assert_close(tensor.double(), exact, rtol=least, atol=least)


def test_a_number_beyond_the_type(tmp_path: Path) -> None:
    """Refused by name, as where models are in memory."""
    first = random_tensors(1) | {"scale": torch.tensor(1e5)}
    stored = [write(tmp_path / "0", first), write(tmp_path / "1", first)]
    (tmp_path / "out").mkdir()
    recipe = Recipe(find_method("simple"), {}, [0.5, 0.5], dtype=torch.float16)
    with pytest.raises(InputError, match=r"parameter scale holds 1e\+05, which is more than float16 can hold"):
        stream_merge(stored, None, recipe, tmp_path / "out")


@pytest.mark.parametrize(
    ("method", "place", "value"),
    [
        ("simple", "0", torch.nan),
        ("karcher", "1", -torch.inf),
        ("task_arithmetic", "0", torch.inf),
        ("task_arithmetic", "base", torch.inf),
        ("ties", "base", torch.nan),
        ("ties", "0", torch.nan),
    ],
)
def test_numbers_that_are_not_finite(tmp_path: Path, place: str, value: float, method: str) -> None:
    """The model that has them is named, whatever its weight, with how many they are in the whole parameter."""
    base = random_tensors(5)
    folders = {"0": near(base, 1), "1": near(base, 2), "base": base}
    folders[place]["table"][0, 3] = value
    folders[place]["table"][8, -1] = value
    stored = {name: write(tmp_path / name, tensors) for name, tensors in folders.items()}
    (tmp_path / "out").mkdir()
    recipe = Recipe(find_method(method), {}, [0.0, 1.0])
    with pytest.raises(InputError, match=rf"^{place}: parameter table holds 2 values of \d+ that are NaN or infinite"):
        stream_merge([stored["0"], stored["1"]], stored["base"], recipe, tmp_path / "out")


def test_numbers_that_are_large_are_finite(tmp_path: Path) -> None:
    """Squares beyond float32 are no damage."""
    first, second = ({"w": torch.full((10,), value)} for value in (1e30, 3e30))
    stored = [write(tmp_path / "0", first), write(tmp_path / "1", second)]
    (tmp_path / "out").mkdir()
    streamed = stream_merge(stored, None, Recipe(find_method("simple"), {}, [0.5, 0.5]), tmp_path / "out")
    assert streamed.distances == pytest.approx([1e30 * 10**0.5] * 2, rel=1e-5)


def test_a_merge_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    """Of finite models: a change that is scaled until the type cannot hold it."""
    base = {name: tensor.half() for name, tensor in random_tensors(5).items()}
    stored = [write(tmp_path / name, near(base, seed)) for seed, name in enumerate("01")]
    of_base = write(tmp_path / "base", base)
    (tmp_path / "out").mkdir()
    recipe = Recipe(find_method("task_arithmetic"), {"lambda_": 1e9}, [0.5, 0.5])
    with pytest.raises(
        InputError, match=r"the merge: parameter \S+ is NaN or infinite, though the models' numbers are"
    ):
        stream_merge(stored, of_base, recipe, tmp_path / "out")


def test_integers_that_differ(tmp_path: Path) -> None:
    """Refused by name, but for the count of batches, which is the first model's."""
    first = random_tensors(1)
    second = near(first, 2) | {"positions": torch.arange(5) + 1}
    stored = [write(tmp_path / "0", first), write(tmp_path / "1", second)]
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="the integer buffer 'positions' differs between the models"):
        stream_merge(stored, None, Recipe(find_method("simple"), {}, [0.5, 0.5]), tmp_path / "out")


def test_a_file_that_shrinks_meanwhile(tmp_path: Path) -> None:
    """A sentence, and no crash of the process."""
    first = random_tensors(1)
    stored = [write(tmp_path / name, first) for name in "01"]
    file = tmp_path / "1" / "model.safetensors"
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"model\.safetensors ends inside the parameter"):
        stream_merge(stored, None, Recipe(find_method("simple"), {}, [0.5, 0.5]), tmp_path / "out")


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_embedding_that_is_stored_twice_stays_tied(tmp_path: Path, tied: bool) -> None:
    """Both names get one merge, of a method that draws by name too; where they merely might be tied, each its own."""
    draw = torch.Generator().manual_seed(0)
    base = {"embed": torch.randn(50, 8, generator=draw)}
    models = [{"embed": base["embed"] + 0.1 * torch.randn(50, 8, generator=draw)} for _ in range(2)]
    every = [{**m, "head": m["embed"].clone()} for m in (base, *models)]
    if not tied:
        every[2]["head"][49, 7] += 1
    stored = [write(tmp_path / str(i), m, vocab_size=50) for i, m in enumerate(every)]
    (tmp_path / "out").mkdir()
    stream_merge(stored[1:], stored[0], Recipe(find_method("dare"), {}, [0.5, 0.5]), tmp_path / "out")
    found = read(tmp_path / "out")
    assert torch.equal(found["embed"], found["head"]) == tied
    alone = merge_states(models, "dare", base=base)["embed"]
    torch.testing.assert_close(found["embed"], alone)
