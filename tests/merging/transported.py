"""Models whose units are transported."""

import copy

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab.symmetry import Blueprint, blueprint
from fusionlab.symmetry.folding import fold
from tests.families import cases_encoders, cases_gpt, cases_vision, harness
from tests.matching.sampling import sample
from tests.symmetry.models import generator, random_model, randomize

State = dict[str, Tensor]


EXACT = {"solver": "exact"}


def llama(**changes: object) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=24,
            intermediate_size=20,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            **changes,
        )
    )


def build(name: str, seed: int) -> nn.Module:
    if name in FAMILIES:
        return harness.random_model(FAMILIES[name], seed)
    return randomize(llama(), seed) if name == "llama" else random_model(name, seed)


def case(name: str, folded: bool) -> tuple[nn.Module, State, Blueprint]:
    model = build(name, 1)
    description = blueprint(model, folded=folded)
    state = fold(model.state_dict(), description) if folded else dict(model.state_dict())
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin, state, description


def activations(model: nn.Module, states: list[State], description: Blueprint) -> list[dict]:
    draw = generator(9)
    batch = {i.name: i.random(40, draw) for i in description.inputs}
    found = []
    for state in states:
        twin = copy.deepcopy(model)
        twin.load_state_dict(state)
        found.append({"activations": sample(twin, batch)})
    return found


def worst(found: State, expected: State) -> float:
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)


FAMILIES = {case.name: case for case in (*cases_gpt.CASES, *cases_encoders.CASES, *cases_vision.CASES)}
