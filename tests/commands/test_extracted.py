"""A merge is written as a LoRA adapter: the best one of its rank, with the share that it captures."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fusionlab import checkpoints
from fusionlab.checkpoints import truncation
from fusionlab.checkpoints.adapters import read_adapter
from fusionlab.commands import merge_models
from tests.commands.conftest import Command
from tests.commands.test_lora import LAYERS, RANK, family

__all__ = ["family"]


def dense(folder: Path) -> dict[str, Tensor]:
    return {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}


def factored(folder: Path) -> dict[str, Tensor]:
    """The changes of an adapter, multiplied out."""
    changes = read_adapter(folder).changes
    return {name: change.scale * change.up.double() @ change.down.double() for name, change in changes.items()}


@pytest.mark.parametrize("rank", [2, 2 * RANK, 16])
def test_a_mean_of_adapters_is_truncated_from_its_factors(
    family: Path, command: Command, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """The best of the rank (by the singular values of the dense mean), without a difference that is formed."""
    monkeypatch.setattr(merge_models, "difference", None)
    out = family / "out"
    given = ["--weights", 1, 3, "--as", "lora", "--rank", rank, "--output", out]
    outcome = command("merge", family / "one", family / "two", *given)
    assert (outcome.code, outcome.err) == (0, "")
    base, one, two = (dense(family / name) for name in ("base", "dense_one", "dense_two"))
    found, card = factored(out), (out / "README.md").read_text()
    assert sorted(found) == sorted(LAYERS)
    for layer, product in found.items():
        name = f"{layer}.weight"
        exact = 0.25 * one[name] + 0.75 * two[name] - base[name]
        u, s, vh = torch.linalg.svd(exact, full_matrices=False)
        best = u[:, :rank] * s[:rank] @ vh[:rank]
        torch.testing.assert_close(product, best, rtol=0, atol=1e-5)
        assert f"{layer}: {float(s[:rank].norm() / s.norm()):.1%}" in card
        assert torch.linalg.matrix_rank(product, rtol=1e-4) == min(rank, 2 * RANK)


def test_other_merges_are_differences(family: Path, command: Command) -> None:
    """Of models, and of adapters by another method: what `merge` and `extract` make, one after the other."""
    for name, models, method in (
        ("models", ["dense_one", "dense_two"], "simple"),
        ("adapters", ["one", "two"], "ties"),
    ):
        paths = [family / model for model in models]
        given = ["--method", method, "--base", family / "base"]
        place = family / name
        assert command("merge", *paths, *given, "--output", place / "whole").code == 0
        extract = ("extract", place / "whole", "--base", family / "base", "--rank", 4, "--output", place / "two_steps")
        assert command(*extract).code == 0
        assert command("merge", *paths, *given, "--as", "lora", "--rank", 4, "--output", place / "one_step").code == 0
        first, second = factored(place / "one_step"), factored(place / "two_steps")
        assert sorted(first) == sorted(second) == sorted(LAYERS)
        for layer, product in first.items():
            torch.testing.assert_close(product, second[layer], rtol=0, atol=1e-5)


def test_options_of_a_mean_are_not_passed_over(family: Path, command: Command) -> None:
    """Weights by layer give the adapter of that merge."""
    paths, chosen = [family / "one", family / "two"], ["--hyperparameters.layer_weights", '{"*": [1, 0]}']
    assert command("merge", *paths, *chosen, "--as", "lora", "--rank", RANK, "--output", family / "first").code == 0
    found, expected = factored(family / "first"), factored(family / "one")
    for layer, product in found.items():
        torch.testing.assert_close(product, expected[layer], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rank", 8], "rank is that of a LoRA adapter; expected --as lora with --rank"),
        (["--as", "lora", "--dtype", "float16"], "expected no --dtype with --as lora"),
        (["--as", "peft"], "as.*one of model, lora"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    family: Path, command: Command, options: list[object], sentence: str
) -> None:
    outcome = command("merge", family / "one", family / "two", *options, "--output", family / "none")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.search(sentence, outcome.err)
    assert not (family / "none").exists()


def test_it_is_an_end_model_again(family: Path, command: Command) -> None:
    """Where the rank is enough the adapter is the merge."""
    paths = [family / "one", family / "two"]
    assert command("merge", *paths, "--as", "lora", "--rank", 2 * RANK, "--output", family / "adapter").code == 0
    assert command("merge", *paths, "--output", family / "whole").code == 0
    found, expected = (checkpoints.load(family / name).state_dict() for name in ("adapter", "whole"))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-5)
    assert (family / "adapter" / "fusionlab.yaml").is_file()
    assert "library_name: peft" in (family / "adapter" / "README.md").read_text()


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        (["dense_one", "dense_two"], [], "expected --base"),
        (["one", "two"], ["--rank", "0"], "rank is 0"),
        (["one", "two"], ["--max-shard-size", "1GB"], "max_shard_size is of whole models"),
        (["dense_one", "dense_two"], ["--base", "{}/one"], "is an adapter itself"),
    ],
)
def test_what_does_not_fit_is_refused(
    family: Path, command: Command, models: list[str], options: list[str], words: str
) -> None:
    """One sentence, and nothing written."""
    given = [option.format(family) for option in options]
    outcome = command("merge", *(family / name for name in models), *given, "--as", "lora", "--output", family / "out")
    assert outcome.code == 2
    assert words in outcome.err
    assert not (family / "out").exists()


@pytest.mark.parametrize("rank", [1, 3, 9])
def test_a_product_is_truncated_without_it(rank: int) -> None:
    """The singular values of the dense matrix decide, whatever the factors; zero stays zero."""
    draw = torch.Generator().manual_seed(0)
    up, down = torch.randn(12, 5, generator=draw), torch.randn(5, 9, generator=draw)
    first, second, share = truncation.truncated_product(up, down, rank)
    expected = truncation.truncated(up @ down, rank)
    torch.testing.assert_close(second @ first, expected[1] @ expected[0], rtol=1e-4, atol=1e-4)
    assert share == pytest.approx(expected[2], abs=1e-5)
    assert first.shape == (min(rank, 5), 9)
    first, second, share = truncation.truncated_product(torch.zeros(12, 5), down, rank)
    assert (float((second @ first).abs().max()), share) == (0.0, 1.0)
