"""Blueprints of models that nobody described, through the calls that users make."""

import copy
import logging.handlers
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

import fusionlab
from fusionlab.cli import main
from fusionlab.symmetry import Alignment, SymmetryError, blueprint
from fusionlab.symmetry.infer.models import inferred
from fusionlab.symmetry.infer.other_batch import OtherBatch
from tests.families.harness import length_preserving

DECODER = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Own(nn.Module):
    """A network that no library knows: convolutions with a skip, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 10, 3, padding=1)
        self.norm = nn.BatchNorm2d(10)
        self.inner, self.outer = nn.Conv2d(10, 14, 1), nn.Conv2d(14, 10, 1)
        self.head = nn.Linear(10, 5)

    def forward(self, image: Tensor) -> Tensor:
        found = self.norm(self.enter(image)).relu()
        found = found + self.outer(nn.functional.gelu(self.inner(found)))
        return self.head(found.mean((2, 3)))


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def distance(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return sum(float((x.double() - y.double()).square().sum()) for x, y in pairs) ** 0.5


def mixtral(seed: int) -> transformers.MixtralForCausalLM:
    torch.manual_seed(seed)
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2)
    ).eval()


def test_a_module_of_ones_own_needs_an_example_once() -> None:
    """Then it is matched and merged like any other: a twin in another basis comes back, and the merge is the model."""
    torch.manual_seed(0)
    model = Own().eval()
    found = fusionlab.blueprint(model, {"image": torch.randn(2, 3, 8, 8)})
    assert {str(space.group) for space in found.spaces.values()} >= {"S(10)", "S(14)"}
    twin = length_preserving(found).apply(model)
    assert distance(twin, model) > 1
    back = fusionlab.match(twin, model, spaces=("all",)).apply(twin)
    assert distance(back, model) < 1e-5
    images = torch.randn(3, 3, 8, 8)
    merged = fusionlab.fuse([model, twin], preset="weights")
    assert (merged(images) - model(images)).abs().max() < 1e-4


def test_without_an_example_one_sentence_says_what_to_do() -> None:
    with pytest.raises(
        SymmetryError, match=r"inputs of a Foreign; expected fusionlab\.blueprint\(model, example_inputs\)"
    ):
        blueprint(Foreign())


def test_a_type_that_is_not_described_is_inferred_from_a_small_one() -> None:
    """The blueprint of three layers is exact though the model that was traced has other sizes; it is made once."""
    model = mixtral(0).double()
    found = blueprint(model)
    assert blueprint(copy.deepcopy(model)) is found
    assert {space.layer for space in found.spaces.values()} == {None, 0, 1, 2}
    assert str(found.spaces["layers.2.experts"].group) == "S(4)"
    assert found.spaces["layers.2.ffn"].copies == (4,)
    assert found.untouched() == ()
    assert str(blueprint(model, folded=True).spaces["residual"].group) == "O(32)"
    model.set_experts_implementation("batched_mm")
    ids = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(0))
    twin = Alignment.random(found, torch.Generator().manual_seed(1)).apply(model)
    before, after = model(ids).logits, twin(ids).logits
    assert (after - before).abs().max() < 1e-6 * before.abs().max()  # norms of the class compute in float32


def test_weights_are_not_looked_at() -> None:
    assert inferred(mixtral(0)) is inferred(mixtral(1))


def test_experts_in_another_order_are_matched_by_the_command(tmp_path: Path) -> None:
    """``fusionlab fuse`` of a model and its twin in a random basis gives the model."""
    model = mixtral(0)
    model.save_pretrained(tmp_path / "model")
    length_preserving(blueprint(model)).apply(model).save_pretrained(tmp_path / "twin")
    chosen = ["--ckpts", str(tmp_path / "model"), str(tmp_path / "twin"), "--match", "weights", "--method", "simple"]
    assert main(["fuse", *chosen, "--output", str(tmp_path / "out")]) == 0
    ids = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before, after = model(ids).logits, fusionlab.load(tmp_path / "out" / "merged")(ids).logits
    assert (after - before).abs().max() < 1e-4 * before.abs().max()


def test_an_example_overrules_a_description_from_then_on() -> None:
    """Of models of the same class and sizes; others are described as before."""
    torch.manual_seed(0)
    model, other = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, units, batch_first=True), 1).eval()
        for units in (28, 32)
    )
    assert blueprint(model).origin.startswith("written in")
    found = fusionlab.blueprint(model, {"src": torch.randn(2, 5, 24)})
    assert found.origin.startswith("inferred")
    assert blueprint(copy.deepcopy(model)) is found
    assert blueprint(other).origin.startswith("written in")


def test_absurd_sizes_of_inputs_are_refused() -> None:
    """A config may say anything; no memory is taken for it."""
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[16, 24], depths=[1, 1], layer_type="basic")
    config.image_size = 10**6
    with pytest.raises(
        SymmetryError, match=r"pixel_values of shape \(3, 1000000, 1000000\); expected inputs of at most"
    ):
        blueprint(transformers.ResNetForImageClassification(config))


def test_inference_leaves_the_random_state_alone() -> None:
    """Of a model on the CPU and of one without memory; whatever is drawn afterwards is what a seed says."""
    small = transformers.BloomConfig(hidden_size=24, n_layer=1, n_head=3, vocab_size=53)
    with torch.device("meta"):
        nowhere = transformers.BloomForCausalLM(transformers.BloomConfig(**{**small.to_dict(), "vocab_size": 59}))
    models = (transformers.BloomForCausalLM(small), nowhere)
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    for model in models:
        assert inferred(model).spaces
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_what_transformers_says_of_small_models_is_not_heard() -> None:
    """A token beyond the small model's vocabulary, for instance; the user's own level of messages stays."""
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=20, decoder_ffn_dim=20, vocab_size=60, num_mel_bins=8, max_source_positions=20,
        max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=50257,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    level, heard = transformers.logging.get_verbosity(), logging.handlers.BufferingHandler(100)
    transformers.logging.add_handler(heard)
    try:
        assert fusionlab.blueprint(model).spaces
    finally:
        transformers.logging.remove_handler(heard)
    assert [record.getMessage() for record in heard.buffer] == []
    assert transformers.logging.get_verbosity() == level


def test_a_model_that_does_not_run_is_one_sentence() -> None:
    with pytest.raises(SymmetryError, match=r"the model does not run on the inputs \(RuntimeError: .*mat1 and mat2"):
        OtherBatch(Foreign(), {"x": torch.randn(3, 5)})
