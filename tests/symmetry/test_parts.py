"""Parts of a blueprint: disjoint, complete, and together they move a model as the whole does."""

import pytest
import torch
import transformers

import fusionlab
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.blueprint import BIASES, FOLDED
from fusionlab.symmetry.parts import parts
from tests.symmetry.infer.expert_lists import EXPERTS, WIDTH, Dense

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 24, "intermediate_size": 40, "vocab_size": 50}


def made(name: str) -> transformers.PreTrainedModel:
    """A model with random biases and gains."""
    cls = getattr(transformers, name)
    extra = {"num_key_value_heads": 2} if "Llama" in name or "Qwen" in name else {}
    torch.manual_seed(0)
    model = cls(cls.config_class(**SIZES, **extra)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("gauge", [(), (FOLDED,), (BIASES,), (FOLDED, BIASES)])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BertForSequenceClassification", "ViTForImageClassification"])
def test_parts_move_a_model_as_the_whole_does(name: str, gauge: tuple[str, ...]) -> None:
    """A random element of all spaces but the residual stream, folding and clearing included."""
    model = made(name)
    whole = blueprint(model).in_gauge(gauge)
    inner = [space for space in whole.spaces.values() if space.layer is not None]
    elements = {s.name: s.group.random(s.copies, torch.Generator().manual_seed(1)) for s in inner}
    found = parts(whole, [space.name for space in inner])
    names = [parameter for part in found for parameter in part.parameters]
    assert sorted(names) == sorted(whole.parameters)
    state = model.state_dict()
    moved = {}
    for part in found:
        own = {space: element for space, element in elements.items() if space in part.spaces}
        moved |= Alignment(part, own).apply({parameter: state[parameter] for parameter in part.parameters})
    expected = Alignment(whole, elements).apply(state)
    for parameter, tensor in expected.items():
        torch.testing.assert_close(moved[parameter], tensor, rtol=1e-12, atol=1e-12)
    # Attention and feed-forward layers are parts of their own.
    assert max(len(part.parameters) for part in found) < 0.6 * len(whole.parameters)


def test_what_is_tied_is_one_part() -> None:
    """Two names of one parameter are never apart; without spaces and gauge every other parameter stands alone."""
    whole = blueprint(made("LlamaForCausalLM"))
    pair = ["lm_head.weight", "model.embed_tokens.weight"]
    found = parts(whole, [], [pair])
    assert sorted(pair) in [sorted(part.parameters) for part in found]
    assert len(found) == len(whole.parameters) - 1


def test_experts_in_a_list_are_one_part() -> None:
    """Their stack has the entries of all; what is tied is told by the names of entries."""
    model = Dense()
    whole = fusionlab.blueprint(model, torch.randn(2, 5, WIDTH))
    found = parts(whole, [], [["experts.0.up.weight", "router.bias"]])
    assert sorted(name for part in found for name in part.names) == sorted(model.state_dict())
    (part,) = (part for part in found if "experts.*.up.weight" in part.parameters)
    assert set(part.parameters) == {"experts.*.up.weight", "router.bias"}
    assert part.stacks == {"experts.*.up.weight": tuple(f"experts.{number}.up.weight" for number in range(EXPERTS))}


def test_the_residual_stream_joins_all_that_it_meets() -> None:
    """Parts of a matching of the stream are one."""
    whole = blueprint(made("BertForSequenceClassification"))
    found = parts(whole, [name for name, space in whole.spaces.items() if space.layer is None])
    assert max(len(part.parameters) for part in found) > 0.7 * len(whole.parameters)
