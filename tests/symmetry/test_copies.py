"""Experts that are copies of each other are told from independent ones."""

import pytest
import torch

from fusionlab.symmetry import blueprint
from fusionlab.symmetry.copies import expert_spreads
from tests.symmetry.infer.cases.experts import SAMPLES
from tests.symmetry.models import generator, random_model

BY_NAME = {sample.name: sample for sample in SAMPLES}
# By model, the tensors of the experts of layer 1, and the space that their spread goes by.
EXPERTS = {
    "mixtral": (("gate_up_proj", "down_proj"), "layers.1.experts"),
    "gpt_oss": (("gate_up_proj", "gate_up_proj_bias", "down_proj"), "layers.1.experts"),
    "deepseek_v3": (("gate_up_proj", "down_proj"), "layers.1.experts"),
}


@pytest.mark.parametrize("name", EXPERTS)
def test_spread_is_the_distance_to_the_mean_expert(name: str) -> None:
    """By hand on every tensor (experts, ...) of a layer that has units; zero once all are copies of the first."""
    model = BY_NAME[name].build().double()
    draw = generator(0)
    state = {key: torch.randn(x.shape, generator=draw, dtype=torch.float64) for key, x in model.state_dict().items()}
    tensors, space = EXPERTS[name]
    names = [f"model.layers.1.mlp.experts.{tensor}" for tensor in tensors]
    experts = torch.cat([state[key].flatten(1) for key in names], 1)
    found = expert_spreads(state, blueprint(model))
    assert found[space] == pytest.approx(float((experts - experts.mean(0)).norm() / experts.norm()), rel=1e-9)
    assert found[space] == pytest.approx((1 - 1 / len(experts)) ** 0.5, rel=0.05)
    copies = state | {key: state[key][:1].expand_as(state[key]) for key in names}
    assert expert_spreads(copies, blueprint(model))[space] < 1e-9


def test_models_without_experts_have_no_spread() -> None:
    model = random_model("bert-sequence")
    assert expert_spreads(model.state_dict(), blueprint(model)) == {}
