"""RegMean++: layer after layer, each on what the merged layers before it give."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    XLMConfig,
    XLMForSequenceClassification,
)

import fusionlab
from fusionlab.errors import InputError
from fusionlab.forward import forward, logits
from fusionlab.merging import merge_states
from fusionlab.merging.layers import Walk, blocks, without_cache
from fusionlab.types import Batch
from tests.symmetry.infer.cases import decoders
from tests.symmetry.models import generator, random_model, relative

WEIGHTS = [0.7, 0.3]


class Chain(nn.Module):
    """Stacks of layers with residual connections, a map before each and a map behind all."""

    def __init__(self, seed: int, *counts: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stacks = [(f"before_{place}", f"layers_{place}") for place in range(len(counts))]
        for place, (before, layers) in enumerate(self.stacks):
            made = [nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 5)) for _ in range(counts[place])]
            self.add_module(before, nn.Linear(5 if place else 4, 5))
            self.add_module(layers, nn.ModuleList(made))
        self.last = nn.Linear(5, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        for before, layers in self.stacks:
            x = torch.tanh(self.get_submodule(before)(x))
            for layer in self.get_submodule(layers).children():
                x = x + layer(x)
        return self.last(x)


def inputs(seed: int) -> list[Batch]:
    """Two batches of unlike sizes."""
    draw = generator(seed)
    return [{"x": torch.randn(count, 4, generator=draw, dtype=torch.float64)} for count in (30, 17)]


def solved(maps: list[nn.Linear], read: list[Tensor]) -> nn.Linear:
    """One map from several by the paper's formula, weight and bias together, alpha 1."""
    grams, wanted = torch.zeros(()), torch.zeros(())
    for weight, linear, rows in zip(WEIGHTS, maps, read, strict=True):
        ones = torch.cat((rows, torch.ones(len(rows), 1, dtype=rows.dtype)), 1)
        gram = weight * ones.mT @ ones / len(rows)
        grams, wanted = grams + gram, wanted + gram @ torch.cat((linear.weight, linear.bias[:, None]), 1).mT
    solution = torch.linalg.solve(grams, wanted)
    merged = copy.deepcopy(maps[0])
    merged.weight.data, merged.bias.data = solution[:-1].mT.contiguous(), solution[-1].contiguous()
    return merged


@torch.no_grad()
def by_hand(models: list[Chain], data: list[list[Batch]]) -> Chain:
    """Map after map in the order of the forward, written out for this model."""
    merged = copy.deepcopy(models[0])
    stream = [torch.cat([batch["x"] for batch in own]) for own in data]
    for before, layers in merged.stacks:
        made = solved([model.get_submodule(before) for model in models], stream)
        merged.set_submodule(before, made)
        stream = [torch.tanh(made(rows)) for rows in stream]
        for place, layer in merged.get_submodule(layers).named_children():
            own = [model.get_submodule(f"{layers}.{place}") for model in models]
            inside = [one[1](one[0](rows)) for one, rows in zip(own, stream, strict=True)]
            layer[0], layer[2] = solved([one[0] for one in own], stream), solved([one[2] for one in own], inside)
            stream = [rows + layer(rows) for rows in stream]
    merged.last = solved([model.last for model in models], stream)
    return merged


@pytest.mark.parametrize("counts", [(2,), (1,), (2, 1), (1, 2, 1)])
def test_equals_the_algorithm(counts: tuple[int, ...]) -> None:
    """On a model whose passes are written out, every map of it; those between two stacks before the second one."""
    models, data = [Chain(seed, *counts) for seed in range(2)], [inputs(seed) for seed in range(2)]
    states = [model.state_dict() for model in models]

    def model(state: dict[str, Tensor], _: int) -> nn.Module:
        made = Chain(0, *counts)
        made.load_state_dict(state)
        return made

    given = {"inputs": data, "model": model, "alpha": 1.0, "ridge": 0.0}
    merged = merge_states(states, "regmean_pp", WEIGHTS, **given)
    for name, tensor in by_hand(models, data).state_dict().items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-9)
    assert all(torch.equal(tensor, states[0][name]) for name, tensor in models[0].state_dict().items())


def families() -> dict[str, nn.Module]:
    """Small models with caches, rotary positions, a position bias that the first layer hands on, two stacks, and keys
    and values that later layers read of earlier ones (Gemma 4).

    XLM makes a cache whatever its config says, and keeps attentions and what is between them in lists of their own.
    """
    torch.manual_seed(0)
    gpt2 = GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=20, n_positions=12)
    llama = LlamaConfig(
        hidden_size=8, intermediate_size=12, num_hidden_layers=3, num_attention_heads=2, vocab_size=20,
    )  # fmt: skip
    t5 = T5Config(d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, vocab_size=20, decoder_start_token_id=0)
    xlm = XLMConfig(n_words=20, emb_dim=8, n_layers=2, n_heads=2, max_position_embeddings=12, pad_index=0)
    made = {
        "gpt2": GPT2LMHeadModel(gpt2),
        "llama": LlamaForCausalLM(llama),
        "t5": T5ForConditionalGeneration(t5),
        "xlm": XLMForSequenceClassification(xlm),
    }
    made |= {"gemma4": next(one for one in decoders.SAMPLES if one.name == "gemma4").build()}
    return {name: model.double().eval() for name, model in made.items()} | {"bert": random_model("bert-sequence")}


FAMILIES = families()


def tokens(name: str, count: int = 6) -> Batch:
    """Random tokens, some of them padding, but for Gemma 4: nothing would be left in its windows of 4 tokens."""
    batch = {"input_ids": torch.randint(3, 20, (count, 7), generator=generator(1))}
    if name == "gemma4":
        return batch
    batch["attention_mask"] = (torch.arange(7)[None] < torch.arange(3, 3 + count)[:, None]).long()
    return batch | ({"decoder_input_ids": batch["input_ids"][:, :4]} if name == "t5" else {})


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_equal_models_stay_as_they_are(name: str) -> None:
    """On real classes, of three kinds of transformers."""
    model = FAMILIES[name]
    merged = fusionlab.merge([model, copy.deepcopy(model)], "regmean_pp", data=[tokens(name)])
    with torch.no_grad():
        found, expected = (logits(one, tokens(name)) for one in (merged, model))
    assert relative(found, expected) < 1e-9


@pytest.mark.parametrize("name", sorted(FAMILIES))
@torch.no_grad()
def test_each_layer_reads_what_it_reads_in_a_forward(name: str) -> None:
    """Caches, masks, position biases and what the encoder gave: the same arguments, each layer run once."""
    model = without_cache(copy.deepcopy(FAMILIES[name]))
    paths, read = blocks(model, tokens(name)), list[Tensor]()
    assert len(paths) >= 2
    walk = Walk(model, paths, [tokens(name)])

    def note(module: nn.Module, args: tuple[Tensor, ...], kwargs: object, output: object) -> None:
        first = output[0] if isinstance(output, tuple) else output
        assert isinstance(first, Tensor)
        # XLM masks in place what a layer gave.
        read.extend((args[0].clone(), first.clone()))

    layers = [model.get_submodule(path) for path in paths]
    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    forward(model, tokens(name))
    whole = list(read)
    read.clear()
    for _ in range(len(paths) + 1):
        walk.advance()
    # Layers that were passed are called again, and give what they gave; the last time each runs is the one that counts.
    assert len(read) >= len(whole)
    for place in range(0, len(whole), 2):
        assert any(torch.equal(whole[place], one) and torch.equal(whole[place + 1], two) for one, two in pairs(read))
    for handle in handles:
        handle.remove()


def pairs(read: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Inputs and outputs."""
    return [(one, two) for one, two in zip(read[::2], read[1::2], strict=True) if one.shape == two.shape]


def test_layers_are_the_outermost_lists_however_short() -> None:
    """A list of one layer too, not the lists inside it; a sequence of one is no stack of layers."""
    inner = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Sequential(nn.Linear(3, 3))
            self.layers = nn.ModuleList([Layer()])

        def forward(self, x: Tensor) -> Tensor:
            return self.layers[0](self.start(x))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return inner[1](inner[0](x))

    assert blocks(Nested(), {"x": torch.zeros(2, 3)}) == ["layers.0"]


def test_what_it_cannot_go_through() -> None:
    """Data that is missing, and models without layers, are a sentence."""
    flat = [nn.Linear(3, 2) for _ in range(2)]
    with pytest.raises(InputError, match="'regmean_pp' needs inputs of each model"):
        fusionlab.merge(flat, "regmean_pp")
    with pytest.raises(InputError, match="has no layers in a list"):
        fusionlab.merge(flat, "regmean_pp", data=[{"x": torch.zeros(2, 3)}])
    with pytest.raises(InputError, match="the data does not fit the model: mat1 and mat2"):
        fusionlab.merge([Chain(0, 1), Chain(1, 1)], "regmean_pp", data=[{"x": torch.zeros(2, 99).double()}])
