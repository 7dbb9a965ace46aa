"""Statistics moved by an alignment are those gathered on the twin, in float64 on real classes."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import GemmaConfig, GemmaForCausalLM

from fusionlab.errors import InputError
from fusionlab.statistics import Fisher, basis_of
from fusionlab.statistics.transport import move
from fusionlab.symmetry import Alignment, Blueprint, SymmetryError, blueprint
from tests.statistics.passes import activations_of, batched, examples_for, grams_of, model_of

PLAIN = ("vit", "bert-sequence", "gpt2-token-relu", "deberta-v3-sequence", "timm-vit-rms", "llama-lm", "whisper-lm")
# Norms whose bias moves on, stays for want of a reader's bias, stays for the zeros beside it; norms without a bias; a
# classifier that reads two normed vectors side by side.
FOLDED = (
    "vit-classifier",
    "timm-vit-no-biases",
    "swin-classifier-padded",
    "llama-lm",
    "gpt2-lm-untied",
    "dinov2-classifier",
)
# Value biases that move on, with what folding has added to them and without, of one projection and of three.
CLEARED = (("bert-sequence", ("biases",)), ("gpt2-lm-untied", ("folded", "biases")))


def twins(name: str, gauge: tuple[str, ...]) -> tuple[nn.Module, nn.Module, Alignment]:
    model = model_of(name)
    description = blueprint(model).in_gauge(gauge)
    assert description.gauge == gauge
    alignment = Alignment.random(description, torch.Generator().manual_seed(2))
    return model, alignment.apply(model), alignment


@pytest.mark.parametrize(
    ("name", "gauge"), [*((n, ()) for n in PLAIN), *((n, ("folded",)) for n in FOLDED), *CLEARED], ids=str
)
def test_moved_grams_are_the_twins(name: str, gauge: tuple[str, ...]) -> None:
    """A random element of every space, in a gauge or without: R G R^T is what a second pass would have found."""
    model, twin, alignment = twins(name, gauge)
    batches = batched(examples_for(model), 2)
    source, expected = grams_of(model, batches), grams_of(twin, batches)
    moved = move(source, alignment, twin.state_dict(), model.state_dict())
    assert (moved.basis, moved.rows, moved.maps) == (expected.basis, expected.rows, expected.maps)
    assert moved.basis == basis_of(twin.state_dict()) != source.basis
    for weight, matrix in expected.matrices.items():
        torch.testing.assert_close(moved.matrices[weight], matrix, rtol=0, atol=1e-8 * float(matrix.abs().max()))
    assert any(not torch.allclose(source.matrices[name].double(), expected.matrices[name]) for name in source.matrices)


def test_gains_that_are_stored_as_their_difference_from_one() -> None:
    """Norms of Gemma are folded by one more than what is stored."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = GemmaConfig(**sizes, num_key_value_heads=1, head_dim=6, vocab_size=23, tie_word_embeddings=False)
    model = GemmaForCausalLM(config).double().eval()
    alignment = Alignment.random(blueprint(model, folded=True), torch.Generator().manual_seed(2))
    twin = alignment.apply(model)
    batches = [{"input_ids": torch.randint(0, 23, (3, 7))}]
    moved = move(grams_of(model, batches), alignment, twin.state_dict(), model.state_dict())
    for weight, matrix in grams_of(twin, batches).matrices.items():
        torch.testing.assert_close(moved.matrices[weight], matrix, rtol=0, atol=1e-8 * float(matrix.abs().max()))


@pytest.mark.parametrize(
    ("name", "gauge"), [("bert-sequence", ("biases",)), ("whisper-lm", ()), ("vit-classifier", ("folded",))], ids=str
)
def test_moved_activations_are_the_twins(name: str, gauge: tuple[str, ...]) -> None:
    """Inputs move by the axis they are read along, and outputs with them; gradients are left behind."""
    model, twin, alignment = twins(name, gauge)
    batches = batched(examples_for(model), 2)
    source, expected = (activations_of(m, batches, samples=6, gradients=True) for m in (model, twin))
    moved = move(source, alignment, twin.state_dict(), model.state_dict())
    assert (moved.basis, moved.drawn, moved.maps) == (expected.basis, expected.drawn, expected.maps)
    assert source.gradients
    assert not moved.gradients
    for part in ("inputs", "outputs"):
        for weight, tensor in getattr(expected, part).items():
            scale = float(tensor.abs().max())
            torch.testing.assert_close(getattr(moved, part)[weight], tensor, rtol=0, atol=1e-7 * scale)


def test_moving_back_is_the_beginning() -> None:
    """The inverse alignment brings the matrices back."""
    model, twin, alignment = twins("bert-sequence", ())
    source = grams_of(model, batched(examples_for(model), 2))
    there = move(source, alignment, twin.state_dict())
    back = move(there, alignment.inverse(), model.state_dict())
    assert back.basis == source.basis
    for name, matrix in source.matrices.items():
        torch.testing.assert_close(back.matrices[name], matrix, rtol=0, atol=1e-9 * float(matrix.abs().max()))


def test_fisher_is_refused() -> None:
    """A diagonal does not stay one under rotations: it has to be gathered again."""
    model, twin, alignment = twins("bert-sequence", ())
    fisher = Fisher(architecture="bert", basis=basis_of(model.state_dict()), examples=1, diagonal={})
    with pytest.raises(InputError, match="gathered on the twin"):
        move(fisher, alignment, twin.state_dict())


def test_another_model_is_refused() -> None:
    """Statistics of one model are not moved as those of another."""
    model, twin, alignment = twins("bert-sequence", ())
    source = grams_of(model, batched(examples_for(model), 2))
    with pytest.raises(InputError, match="measured on another model"):
        move(source, alignment, twin.state_dict(), model_of("bert-sequence", seed=1).state_dict())


def folded_twins(gain: float) -> tuple[nn.Module, nn.Module, Alignment, Blueprint]:
    """A model with one gain as given, folded but not moved otherwise."""
    model = model_of("vit-classifier")
    description = blueprint(model, folded=True)
    with torch.no_grad():
        model.get_parameter(description.norms[0].weight)[0] = gain
    alignment = Alignment.identity(description)
    return model, alignment.apply(model), alignment, description


@pytest.mark.parametrize("gain", [0.0, 1e-9])
def test_a_fold_that_cannot_be_followed_is_refused(gain: float) -> None:
    """A gain of zero hides what a norm gives; one that is tiny beside the bias would turn rounding into numbers."""
    model, twin, alignment, _ = folded_twins(gain)
    source = grams_of(model, batched(examples_for(model), 2))
    with pytest.raises(SymmetryError, match="gather on the twin"):
        move(source, alignment, twin.state_dict(), model.state_dict())


def test_folding_needs_the_end_model() -> None:
    """Without the gains there is no way to follow a fold."""
    model, twin, alignment, _ = folded_twins(1.0)
    source = grams_of(model, batched(examples_for(model), 2))
    with pytest.raises(SymmetryError, match="end model's state"):
        move(source, alignment, twin.state_dict())


def test_folding_a_folded_model_moves_nothing() -> None:
    """Gains that are one already leave the matrices as they are."""
    _, folded, alignment, _ = folded_twins(1.0)
    source = grams_of(folded, batched(examples_for(folded), 2))
    moved = move(source, alignment, copy.deepcopy(folded).state_dict(), folded.state_dict())
    for name, matrix in source.matrices.items():
        torch.testing.assert_close(moved.matrices[name], matrix, rtol=1e-12, atol=1e-12)


def test_statistics_of_a_grown_model_do_not_move_with_an_alignment_that_fills_it() -> None:
    """What its units read is other than it was, so there is no way but to gather on the twin."""
    model, twin, alignment = twins("vit", ())
    grams = grams_of(model, batched(examples_for(model), 2))
    name = next(name for name in model.state_dict() if name.endswith("fc1.weight"))
    filling = {name: torch.zeros_like(model.state_dict()[name])}
    with pytest.raises(SymmetryError, match="gather on the twin"):
        move(grams, replace(alignment, filling=filling), twin.state_dict(), model.state_dict())
