"""Several modules as one architecture, and new modules from parameters."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from fusionlab.errors import InputError
from fusionlab.models import aliases, common_blueprint, untie, with_state
from fusionlab.symmetry import SymmetryError, blueprint
from tests.commands.small import bert, timm_vit, vit


def test_models_of_one_architecture_share_a_blueprint() -> None:
    """It is the blueprint of each of them."""
    shared = common_blueprint({"a": vit(0), "b": vit(1), "c": vit(2)})
    assert shared == blueprint(vit(0))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (bert(), "b is a BertForSequenceClassification and a a ViTForImageClassification"),
        (timm_vit(), "b is a VisionTransformer and a a ViTForImageClassification"),
        (vit(hidden_size=24), "cls_token' has shape 1 x 1 x 24 in b; expected shape 1 x 1 x 16 as in a"),
        (vit(num_hidden_layers=1), "'vit.layers.1.*' is missing in b"),
        (vit(num_hidden_layers=3), "b has the parameter 'vit.layers.2.*', which a lacks"),
        (vit(qkv_bias=False), "proj.bias' is missing in b; expected shape 16 as in a"),
        (
            vit(num_attention_heads=4),
            r"b and a have parameters of the same shapes, but configs that differ in num_attention_heads \(4 and 2\)",
        ),
        (vit(num_labels=3), "'classifier.weight' has shape 3 x 16 in b"),
    ],
)
def test_models_that_do_not_fit(second: nn.Module, message: str) -> None:
    """One sentence names the first thing that differs and both models."""
    with pytest.raises(InputError, match=message):
        common_blueprint({"a": vit(), "b": second})


def test_embeddings_that_only_one_ties_are_named() -> None:
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 6}
    tied, untied = (GPT2LMHeadModel(GPT2Config(**sizes, tie_word_embeddings=is_tied)) for is_tied in (True, False))
    with pytest.raises(InputError, match=r"of the same shapes, but lm_head.weight is tied to .*wte.weight in one of"):
        common_blueprint({"a": tied, "b": untied})


def test_too_few_models_and_unknown_ones() -> None:
    """One model cannot be merged; an architecture without a description cannot be matched."""
    with pytest.raises(InputError, match="1 end model was given; expected at least two"):
        common_blueprint({"a": vit()})
    with pytest.raises(SymmetryError, match="Linear"):
        common_blueprint({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})


def test_with_state_is_a_new_module() -> None:
    """Same class, the given parameters, eval mode; the template and the state are left alone."""
    template, other = vit(0).train(), vit(1)
    before = {name: tensor.clone() for name, tensor in template.state_dict().items()}
    made = with_state(template, other.state_dict())
    assert type(made) is type(template)
    assert not made.training
    assert template.training
    assert all(torch.equal(made.state_dict()[name], tensor) for name, tensor in other.state_dict().items())
    with torch.no_grad():
        made.classifier.bias.add_(1)
    assert all(torch.equal(template.state_dict()[name], tensor) for name, tensor in before.items())
    assert torch.equal(other.classifier.bias, vit(1).classifier.bias)


def test_aliases_are_of_storage_and_not_of_values() -> None:
    """A tied embedding goes by its first name; equal numbers, empty tensors and views of other shapes are no ties."""
    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 7, "n_positions": 5}
    tied = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    assert aliases(tied.state_dict()) == {"lm_head.weight": "transformer.wte.weight"}
    tensor = torch.zeros(2, 3)
    others = {
        "view": tensor.T,
        "part": tensor[0],
        "copy": tensor.clone(),
        "none": torch.zeros(0),
        "nil": torch.zeros(0),
    }
    assert aliases({"a": tensor, **others, "b": tensor}) == {"b": "a"}


def test_untying_leaves_a_model_in_its_mode() -> None:
    """It is not modified."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2)).train()
    model.transformer.wte.eval()
    before = {name: part.training for name, part in model.named_modules()}
    assert not untie(model).training
    assert {name: part.training for name, part in model.named_modules()} == before
