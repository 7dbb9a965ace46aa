"""What a model cannot run on is one sentence; what it can run on is left to it."""

import copy

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    GPTNeoConfig,
    LlamaConfig,
    LlamaModel,
    MptConfig,
    MptModel,
    PretrainedConfig,
)

from fusionlab.errors import InputError
from fusionlab.forward import forward, refusing_misfit

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 9}


def bert() -> nn.Module:
    return BertModel(BertConfig(**SMALL, max_position_embeddings=6)).eval()


def tokens(length: int, largest: int = 8) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.full((2, length), largest), "attention_mask": torch.ones(2, length, dtype=torch.long)}


@pytest.mark.parametrize(
    "model", [bert(), GPT2Model(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=9, n_positions=6)).eval()]
)
def test_more_tokens_than_positions(model: nn.Module) -> None:
    """Named with how many there may be; as many as that run."""
    assert forward(model, tokens(6)).last_hidden_state.shape == (2, 6, 16)
    with pytest.raises(InputError, match="inputs of 7 tokens, but the model has positions for 6; expected shorter"):
        forward(model, tokens(7))


def test_positions_without_a_table_go_on() -> None:
    """Rotary ones are computed for any length."""
    model = LlamaModel(LlamaConfig(**SMALL, max_position_embeddings=6)).eval()
    assert forward(model, tokens(9)).last_hidden_state.shape == (2, 9, 16)


def test_positions_under_another_name() -> None:
    """MPT adds biases for so many to its scores."""
    sizes = {"vocab_size": 9, "d_model": 16, "n_heads": 2, "n_layers": 1, "max_seq_len": 6}
    with pytest.raises(InputError, match="inputs of 7 tokens, but the model has positions for 6; expected shorter"):
        forward(MptModel(MptConfig(**sizes)).eval(), tokens(7))


def test_keys_and_values_are_not_kept() -> None:
    """BART's decoder, with more layers than its encoder, cannot even: transformers makes a cache for the encoder's."""
    sizes = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=9, d_model=16, encoder_layers=1, decoder_layers=2, **sizes)
    gpt2 = GPT2Model(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=9, n_positions=6)).eval()
    for model in (BartForCausalLM(config).eval(), gpt2):
        assert "past_key_values" not in forward(model, tokens(6))


def test_unknown_tokens() -> None:
    """Of another tokenizer."""
    with pytest.raises(InputError, match="the token 9, but the model has embeddings for 9"):
        forward(bert(), tokens(3, 9))


def test_other_errors_are_the_models_own() -> None:
    """A place that there is no position for is about neither lengths nor tokens."""
    with pytest.raises((IndexError, RuntimeError)):
        forward(bert(), tokens(4) | {"position_ids": torch.full((1, 4), 99)})


def test_a_failure_on_data_is_told_as_a_misfit_and_one_of_the_machine_as_it_is() -> None:
    with pytest.raises(InputError, match="the data does not fit the model: no such shape"), refusing_misfit():
        raise RuntimeError("no such shape\nand more")
    for error in (torch.OutOfMemoryError("CUDA out of memory."), InputError("x is 1; expected 2"), MemoryError()):
        with pytest.raises(type(error)) as raised, refusing_misfit():
            raise error
        assert raised.value is error


def test_several_dtypes_run_in_the_widest() -> None:
    """A norm in float32 among layers in bfloat16: nothing is rounded, and gradients come in each parameter's dtype."""
    torch.manual_seed(0)
    model = LlamaModel(LlamaConfig(**SMALL)).eval().to(torch.bfloat16)
    model.layers[0].input_layernorm.weight.data = 1 + torch.randn(16) / 9
    types = [parameter.dtype for parameter in model.parameters()]
    expected = forward(copy.deepcopy(model).float(), tokens(5)).last_hidden_state
    found = forward(model, tokens(5)).last_hidden_state
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert [parameter.dtype for parameter in model.parameters()] == types
    assert all(
        parameter.grad is not None and parameter.grad.dtype == parameter.dtype for parameter in model.parameters()
    )


def test_one_dtype_runs_once() -> None:
    """What fails for another reason is not run again, whatever a class computes in float32 beside its parameters."""
    model = LlamaModel(LlamaConfig(**SMALL)).eval().to(torch.bfloat16)
    model.rotary_emb.inv_freq.data = model.rotary_emb.inv_freq.data.float()
    calls = []

    def fail(*_: object) -> None:
        calls.append(1)
        raise RuntimeError("no memory")

    model.layers[0].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        forward(model, tokens(5))
    assert len(calls) == 1


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(vocab_size=20, n_positions=32, n_embd=16, n_layer=1, n_head=2),
        GPTNeoConfig(
            vocab_size=20, max_position_embeddings=32, hidden_size=16, num_layers=1, num_heads=2,
            attention_types=[[["global"], 1]],
        ),
        LlamaConfig(
            vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
        ),
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_padding_before_a_text_changes_nothing(config: PretrainedConfig) -> None:
    """As tokenizers of models that write texts pad."""
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(1, 20, (1, 6), generator=torch.Generator().manual_seed(0))
    padded = {name: nn.functional.pad(x, (5, 0)) for name, x in (("input_ids", ids), ("attention_mask", ids > 0))}
    with torch.no_grad():
        alone, beside = forward(model, {"input_ids": ids}).logits, forward(model, padded).logits
    torch.testing.assert_close(beside[:, 5:], alone, rtol=1e-4, atol=1e-5)


def test_inputs_go_by_their_names_where_the_forward_has_them() -> None:
    """In whatever order; else one behind the other."""

    class Difference(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert forward(Difference(), {"y": one, "x": two}) == 1
    assert forward(Difference(), {"a": one, "b": two}) == -1
