"""Gram matrices are those of the inputs written one below the other."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlavaConfig, LlavaForConditionalGeneration

from fusionlab.statistics import Grams, gram
from fusionlab.statistics.gather import gather
from fusionlab.statistics.gram import add_product
from tests.statistics.passes import batched, examples_for, grams_of, inputs_by_hand, model_of
from tests.symmetry.models import generator

TEXT = ("bert-sequence", "deberta-v3-sequence", "albert-token", "gpt2-token-relu", "llama-lm", "t5-lm", "bart-lm")
IMAGES = ("vit-classifier", "timm-vit", "swin-classifier")


def with_ones(rows: Tensor) -> Tensor:
    rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
    return rows.T @ rows


def assert_equal(found: Grams, expected: Grams, tolerance: float = 1e-12) -> None:
    assert found.rows == expected.rows
    assert found.maps == expected.maps
    for name, matrix in expected.matrices.items():
        torch.testing.assert_close(
            found.matrices[name], matrix, rtol=tolerance, atol=tolerance * float(matrix.abs().max())
        )


@pytest.mark.parametrize("name", [*TEXT, *IMAGES])
def test_equals_the_concatenated_inputs(name: str) -> None:
    """Every linear map's matrix is the product of all its inputs, read one unpadded example at a time.

    What DeBERTa's projections read of relative positions is no data, and no rows of it are in the matrix.
    """
    model = model_of(name)
    examples = examples_for(model)
    positions = {2 * 16, 2 * 32}

    def is_data(value: Tensor, example: dict[str, Tensor]) -> bool:
        return not (name.startswith("deberta") and value.shape[-2] in positions)

    expected = inputs_by_hand(model, examples, is_data)
    found = grams_of(model, batched(examples, 2))
    tied = {n for n in expected if n not in found.maps}
    assert tied <= {"lm_head.weight"}
    assert found.examples == len(examples)
    assert set(found.maps) == set(expected) - tied
    for weight, linear in found.maps.items():
        matrix = with_ones(expected[weight])
        assert found.rows[linear.inputs] == len(expected[weight])
        torch.testing.assert_close(
            found.matrices[linear.inputs], matrix, rtol=1e-9, atol=1e-9 * float(matrix.abs().max())
        )


@pytest.mark.parametrize("name", TEXT)
def test_padding_does_not_count(name: str) -> None:
    """More padding on the same examples, on both sides of an encoder and decoder, leaves every matrix as it is."""
    model = model_of(name)
    examples = examples_for(model)
    assert_equal(grams_of(model, batched(examples, 5, extra=4)), grams_of(model, batched(examples, 5)))


@pytest.mark.parametrize("name", ["bert-sequence", "vit-classifier"])
def test_batch_size_does_not_matter(name: str) -> None:
    """One example at a time gives what all of them at once give."""
    model = model_of(name)
    examples = examples_for(model)
    assert_equal(grams_of(model, batched(examples, 1)), grams_of(model, batched(examples, 5)))


def test_shared_inputs_are_counted_once() -> None:
    """Query, key and value share one matrix, kept once; so do all four maps that GPT-J's layers read side by side."""
    bert = model_of("bert-token")
    found = grams_of(bert, batched(examples_for(bert), 5))
    at = "bert.encoder.layer.0.attention.self"
    assert len({found.maps[f"{at}.{name}.weight"].inputs for name in ("query", "key", "value")}) == 1
    assert len(found.matrices) == 2 * 4 + 1
    parallel = model_of("gptj-lm")
    found = grams_of(parallel, batched(examples_for(parallel), 5))
    assert len(found.matrices) == 2 * 3 + 1


def test_calls_of_one_map_are_summed() -> None:
    """ALBERT's layers share weights: their matrix holds the rows of every layer."""
    model = model_of("albert-token")
    examples = examples_for(model)
    found = grams_of(model, batched(examples, 5))
    tokens = sum(example["input_ids"].shape[1] for example in examples)
    assert found.rows["albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"] == 2 * tokens


def test_what_is_left_out_is_told() -> None:
    """A map tied to an embedding has no matrix; a projection of positions has none; the settings name both."""
    tied = model_of("gpt2-lm-tied")
    found = grams_of(tied, batched(examples_for(tied), 5))
    assert "lm_head.weight" not in found.maps
    assert "lm_head.weight: an embedding too" in found.settings["left_out"]
    positions = model_of("deberta-v2")
    found = grams_of(positions, batched(examples_for(positions), 5))
    assert "encoder.layer.0.attention.self.pos_key_proj.weight" not in found.maps
    assert "pos_query_proj.weight: reads no data" in found.settings["left_out"]


def test_dimensions_and_biases_of_maps() -> None:
    """A map says which dimension of its weight reads, its bias's name, and fits its matrix."""
    for name in ("gpt2-token-relu", "vit-classifier", "llama-lm"):
        model = model_of(name)
        state = model.state_dict()
        found = grams_of(model, batched(examples_for(model), 5))
        for weight, linear in found.maps.items():
            shape = state[weight].shape
            read = shape[0] if linear.dim == 0 else shape[1:].numel()
            assert found.matrices[linear.inputs].shape == (read + 1, read + 1)
            assert linear.dim == (0 if "gpt2" in name and "classifier" not in weight else 1)
            assert (linear.bias in state) == (linear.bias is not None)
            assert found.mean(weight)[-1, -1] == 1


def test_decoder_tokens_with_ignored_labels_do_not_count() -> None:
    """Where a decoder has no mask of its own, its tokens whose label is ignored are padding."""
    model = model_of("t5-lm")
    examples = examples_for(model)
    (batch,) = batched(examples, 5)
    expected = grams_of(model, [batch])
    mask = batch.pop("decoder_attention_mask")
    batch["labels"] = torch.where(mask.bool(), batch["decoder_input_ids"], -100)
    assert grams_of(model, [batch]).rows == expected.rows


@pytest.mark.parametrize("size", [1, 3, 4, 7, 12])
def test_product_in_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower triangle made block by block is that of the whole product, whatever blocks fit."""
    monkeypatch.setattr(gram, "BLOCK", 4)
    rows = torch.randn(9, size, generator=generator(size), dtype=torch.float64)
    product = torch.zeros(size, size, dtype=torch.float64)
    add_product(product, rows)
    torch.testing.assert_close(product.tril(), (rows.T @ rows).tril())


def test_every_batch_has_its_own_padding() -> None:
    """Batches of one shape whose examples end at other places: each goes by its own mask."""
    model = model_of("bert-sequence")
    examples = [example for example in examples_for(model, 12) if example["input_ids"].shape[1] < 8][:6]
    lengths = {example["input_ids"].shape[1] for example in examples}
    assert len(lengths) > 1
    (whole,) = batched(examples, 6)
    parts = [{name: value[start : start + 2] for name, value in whole.items()} for start in (0, 2, 4)]
    assert_equal(grams_of(model, parts), grams_of(model, [whole]))


def test_a_batch_without_padding_needs_no_mask() -> None:
    """Beside others that have one."""
    model = model_of("bert-sequence")
    padded, whole = (batched([example], 1) for example in examples_for(model, 12)[:2])
    bare = [{name: x for name, x in batch.items() if name != "attention_mask"} for batch in whole]
    assert_equal(grams_of(model, [*padded, *bare]), grams_of(model, [*padded, *whole]))


def test_a_first_batch_without_padding_needs_no_mask() -> None:
    """What later ones hide does not count either."""
    model = model_of("bert-sequence")
    padded, whole = (batched([example], 1) for example in examples_for(model, 12)[:2])
    ends = [{name: functional.pad(x, (0, 2)) for name, x in batch.items()} for batch in padded]
    bare = [{name: x for name, x in batch.items() if name != "attention_mask"} for batch in whole]
    assert_equal(grams_of(model, [*bare, *ends]), grams_of(model, [*whole, *padded]))


@pytest.mark.parametrize("is_masked", [False, True])
def test_words_beside_the_tokens_of_an_image(is_masked: bool) -> None:
    """None of these tokens can be left out where it is looked for what is a token."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = LlavaConfig(
        text_config={"model_type": "llama", "vocab_size": 20, **sizes},
        vision_config={"model_type": "clip_vision_model", "image_size": 8, "patch_size": 4, **sizes},
        image_token_id=19,
    )
    model = LlavaForConditionalGeneration(config).eval()
    ids = torch.tensor([[1, 19, 19, 19, 19, 5, 6, 2], [1, 19, 19, 19, 19, 7, 2, 0]])
    masks = {"attention_mask": (ids != 0).long()} if is_masked else {}
    batch = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 8, 8, generator=generator(0)), **masks}
    (found,) = gather(model, [batch]).values()
    assert isinstance(found, Grams)
    assert found.rows[found.maps["lm_head.weight"].inputs] == (15 if is_masked else 16)
    assert found.rows[found.maps["model.multi_modal_projector.linear_1.weight"].inputs] == 8


def test_an_input_that_is_changed_in_place_is_another_input() -> None:
    """Two maps that read one tensor share a matrix only if it is the same when they read it; two convolutions never."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(3, 2).double() for _ in range(3))

        def forward(self, pixel_values: Tensor) -> Tensor:
            x = pixel_values.clone()
            first = self.a(x) + self.b(x)
            return first + self.c(x.mul_(2))

    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 2, 2, 2).double(), nn.Conv2d(1, 2, 2, 1).double()

        def forward(self, pixel_values: Tensor) -> Tensor:
            return self.a(pixel_values).flatten(1).sum(1) + self.b(pixel_values).flatten(1).sum(1)

    rows = torch.randn(5, 3, generator=generator(0), dtype=torch.float64)
    found = grams_of(Model(), [{"pixel_values": rows}])
    assert [found.maps[f"{name}.weight"].inputs for name in "abc"] == ["a.weight", "a.weight", "c.weight"]
    torch.testing.assert_close(found.matrices["c.weight"], with_ones(2 * rows))
    pixels = torch.randn(5, 1, 4, 4, generator=generator(0), dtype=torch.float64)
    found = grams_of(Convolutions(), [{"pixel_values": pixels}])
    assert found.rows == {"a.weight": 5 * 4, "b.weight": 5 * 9}


def test_half_precision_is_gathered_in_float32() -> None:
    """A bfloat16 model's matrices are as exact as those of its float32 copy, and it stays as it was."""
    model = model_of("bert-sequence").bfloat16().train()
    before = copy.deepcopy(model.state_dict())
    batches = batched(examples_for(model), 2)
    found = grams_of(model, batches)
    assert_equal(found, grams_of(copy.deepcopy(model).float(), batches), tolerance=1e-6)
    assert all(matrix.dtype == torch.float32 for matrix in found.matrices.values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(isinstance(m, nn.Module) and m._forward_hooks for m in model.modules())
    found.check(model.state_dict())


def test_float32_sums_stay_exact() -> None:
    """After 60 batches, sums in float32 differ from those in float64 by no more than single roundings do."""
    model = model_of("bert-token")
    batches = batched(examples_for(model, 60), 1)
    exact, found = grams_of(model, batches), grams_of(copy.deepcopy(model).float(), batches)
    for name, matrix in exact.matrices.items():
        scale = matrix.diagonal().sqrt()
        error = (found.matrices[name].double() - matrix).abs() / torch.outer(scale, scale)
        assert float(error.max()) < 3e-6
