"""What was tried is told with what came of it, and survives growth, the disk and other gauges."""

from dataclasses import replace

import pytest
import torch
import transformers
from torch import Tensor, nn

from fusionlab.symmetry import Blueprint, blueprint
from fusionlab.symmetry.evidence import Outcome, Trial, best_of_each
from fusionlab.symmetry.groups import Invertible, Orthogonal, OrthogonalFixingOnes, Permutation, Rotary, Scale
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.models import ON_A_SMALL_ONE, ON_BOTH, ON_ITSELF, inferred


class Layers(nn.Module):
    """A stream that is read through a norm, units behind a ReLU, and two linear maps with nothing between them."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Linear(4, 9), nn.RMSNorm(9)
        self.up, self.down = nn.Linear(9, 11), nn.Linear(11, 9)
        self.last, self.inner, self.leave = nn.RMSNorm(9), nn.Linear(9, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.enter(x)
        found = found + self.down(self.up(self.norm(found)).relu())
        return self.leave(self.inner(self.last(found)))


@pytest.fixture(scope="module")
def layers() -> Blueprint:
    return infer(Layers(), {"x": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))}, "layers")


def test_what_was_tried_on_a_space_is_told_with_what_came_of_it(layers: Blueprint) -> None:
    trials = {str(space.group): layers.trials[name] for name, space in layers.spaces.items()}
    assert {type(trial.group) for one in trials.values() for trial in one} >= {
        Invertible,
        Orthogonal,
        Permutation,
        Scale,
    }
    for group, tried in trials.items():
        taken = [trial for trial in tried if trial.outcome is Outcome.TAKEN]
        assert group in {str(trial.group) for trial in taken}
        assert all(trial.change is not None and trial.change <= EXACT for trial in taken)
    (linear,) = trials["GL(5)"]
    assert (linear.outcome, linear.folded) == (Outcome.TAKEN, False)
    rotations, permutations = trials["S(9)"]
    assert (type(rotations.group), rotations.outcome, rotations.folded) == (Orthogonal, Outcome.TAKEN, True)
    assert (type(permutations.group), permutations.folded) == (Permutation, False)
    (factor,) = trials["R+(1)"]
    assert (str(factor.group), factor.outcome) == ("R+(1)", Outcome.TAKEN)


def test_what_changes_the_outputs_is_told_with_the_change() -> None:
    """Units behind a GELU: rotations of them are tried where squares of the factors alone would allow them."""

    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.gate, self.leave = nn.Linear(4, 9), nn.Linear(4, 9), nn.Linear(9, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(self.enter(x) * nn.functional.silu(self.gate(x)))

    found = infer(Squares(), {"x": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))}, "squares")
    (units,) = (name for name, space in found.spaces.items() if str(space.group) == "S(9)")
    changed = [trial for trial in found.trials[units] if trial.outcome is Outcome.CHANGED]
    assert [type(trial.group) for trial in changed] == [Orthogonal, OrthogonalFixingOnes]
    assert all(trial.change is not None and trial.change > 1e-6 for trial in changed)


def test_of_each_group_the_best_is_kept() -> None:
    worse, better = (Trial(Permutation(3), outcome) for outcome in (Outcome.CHANGED, Outcome.TAKEN))
    folded, other = replace(worse, folded=True), Trial(Orthogonal(3), Outcome.UNTRIED)
    assert best_of_each([worse, other, better, worse, folded]) == (better, other, folded)
    assert best_of_each([other, better, worse]) == (other, better)


def test_all_that_is_told_of_a_small_model_is_told_of_the_real_one(layers: Blueprint) -> None:
    """Every space has trials, in each gauge, and one of them is of its own kind of group and was taken."""
    config = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "intermediate_size": 40, "num_local_experts": 4}
    torch.manual_seed(0)
    found = inferred(transformers.MixtralForCausalLM(transformers.MixtralConfig(**config, **more)))
    for described in (layers, layers.after_folding, found, found.after_folding, found.without_biases()):
        assert described is not None
        assert set(described.trials) == set(described.spaces)
        for name, space in described.spaces.items():
            taken = [trial.group for trial in described.trials[name] if trial.outcome is Outcome.TAKEN]
            assert type(space.group) in {type(group) for group in taken}, name
    assert {type(trial.group) for trial in found.trials["layers.2.qk"]} == {Rotary}


def test_the_origin_says_where_it_was_found() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "n_layer": 1, "n_head": 3, "vocab_size": 53}
    model = transformers.BloomForCausalLM(transformers.BloomConfig(**sizes))
    assert inferred(model).origin == ON_BOTH
    with torch.device("meta"):
        large = transformers.BloomForCausalLM(transformers.BloomConfig(**{**sizes, "vocab_size": 10**6}))
    assert inferred(large).origin == ON_A_SMALL_ONE
    own = blueprint(Layers(), {"x": torch.randn(2, 4)})
    assert own.after_folding is not None
    assert (own.origin, own.after_folding.origin) == (ON_ITSELF, ON_ITSELF)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, 20, batch_first=True), 1)
    for folded in (False, True):
        assert blueprint(encoder, folded=folded).origin == "written in symmetry/architectures/torch_encoder.py"
        assert blueprint(encoder, folded=folded).trials == {}
