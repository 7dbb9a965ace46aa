"""Another epsilon of norms in the larger model: all that is written to the stream is longer, or its effect is told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from fusionlab.evaluation.preservation import random_logits
from fusionlab.growing import grown, shrunk
from fusionlab.symmetry.any_model import blueprint
from tests.growing.families import CASES, TEXT, bert, gemma2, gpt2, llama
from tests.parts import one_in
from tests.symmetry.models import randomize


def masked(**changes: Any) -> nn.Module:
    """A model whose head has a norm behind an activation, whose length nothing but its epsilon fixes."""
    return transformers.BertForMaskedLM(transformers.BertConfig(**{**TEXT, **changes}))


def logits(model: nn.Module) -> torch.Tensor:
    return random_logits(model.double(), blueprint(model).inputs, seed=5)


@pytest.mark.parametrize(
    ("build", "larger", "longer"),
    one_in(
        2,
        [
            (llama, {**CASES["llama"].larger, "rms_norm_eps": 1e-4}, 10),
            (llama, {"rms_norm_eps": 1e-4, "tie_word_embeddings": True}, 10),
            (gpt2, {"layer_norm_epsilon": 1e-7, "n_embd": 24}, 0.1),
            (gemma2, {**CASES["gemma2"].larger, "rms_norm_eps": 1e-4}, 10),
            (bert, {**CASES["bert-multiple"].larger, "layer_norm_eps": 1e-4}, 10**4),
        ],
    ),
    ids=one_in(2, ["wider", "tied, of one size", "tied", "norms around each part", "norms behind the sums"]),
)
def test_a_longer_stream_makes_good_for_it(
    build: Callable[..., nn.Module], larger: dict[str, Any], longer: float
) -> None:
    """The epsilons' ratio is the square of the length, so norms act as they did, on other inputs too."""
    small = randomize(build(**{name: larger[name] for name in ("tie_word_embeddings",) if name in larger}), 0).double()
    growth = grown(small, build(**larger))
    assert growth.longer == pytest.approx(longer)
    assert growth.effect == 0
    before = logits(small)
    assert float((logits(growth.model) - before).abs().max()) < 1e-9 * float(before.abs().max())
    (note,) = growth.notes
    assert f"{longer:.3g} times as long" in note


def test_what_nothing_makes_good_for_is_measured() -> None:
    """The grown model is the small one with the other epsilon, exactly; what that moves is told."""
    small = randomize(masked(), 0).double()
    growth = grown(small, masked(hidden_size=24, layer_norm_eps=1e-3))
    assert growth.longer == 1
    assert growth.exact < 1e-9
    other = masked(layer_norm_eps=1e-3).double().eval()
    other.load_state_dict(small.state_dict())
    before, after = logits(small), logits(other)
    assert float((logits(growth.model) - after).abs().max()) < 1e-9 * float(before.abs().max())
    first = random_logits(small, blueprint(small).inputs)
    moved = float((random_logits(other, blueprint(small).inputs) - first).abs().max() / first.abs().max())
    assert growth.effect == pytest.approx(moved)
    assert growth.stored == pytest.approx(moved)
    assert f"moves logits by {moved:.1e} of the largest" in growth.notes[0]


def test_streams_stay_as_long_where_hardly_anything_moves() -> None:
    growth = grown(randomize(bert(), 0).double(), bert(hidden_size=24, layer_norm_eps=1e-9))
    assert growth.longer == 1
    assert 0 < growth.effect < 1e-5


def test_a_grown_model_comes_back() -> None:
    small = randomize(llama(), 0).double()
    large = grown(small, llama(**{**CASES["llama"].larger, "rms_norm_eps": 1e-4})).model
    assert shrunk(large, small).differs < 1e-9
