"""Block coordinate ascent over spaces that are coupled: it descends until nothing changes, from the start asked for."""

import itertools
import re

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.starts import annealed
from fusionlab.matching.weights import match_weights
from fusionlab.symmetry import blueprint
from tests.matching.pairs import RESCALES, distance, noisy, pair
from tests.parts import one_in
from tests.symmetry.models import generator, rigid


@pytest.mark.parametrize(
    ("name", "rescale"),
    one_in(4, [
        *(("bert-sequence", rescale) for rescale in RESCALES),
        ("roberta-token", "off"), ("vit-classifier", "sequential"), ("timm-distilled", "joint"),
    ]),
)  # fmt: skip
def test_more_sweeps_never_move_away(name, rescale):
    """The residual stream couples all spaces: the distance falls from sweep to sweep, until nothing changes."""
    anchor, _, description = pair(name)
    goal = anchor.state_dict()
    worth_repeating = False
    for seed in (4, 5, 6):
        # Layers that are alike under embeddings and heads that hardly are: what the first pass starts from misleads.
        alike, apart = noisy(goal, 0.5, seed=seed), noisy(goal, 4.0, seed=seed)
        mixed = {key: (alike if re.search(r"(layer|layers|blocks)\.\d", key) else apart)[key] for key in goal}
        source = rigid(description, seed=seed).apply(mixed)
        distances = [distance(source, goal)]
        for sweeps in (1, 2, 3, 4, 5, 50):
            options = MatchOptions(spaces=("all",), rescale=rescale, sweeps=sweeps)
            twin = match_weights(source, goal, description, options).apply(source)
            distances.append(distance(twin, goal))
        assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(distances))
        worth_repeating |= distances[2] < (1 - 1e-4) * distances[1]
        again = distance(match_weights(twin, goal, description, options).apply(twin), goal)
        # A scaled stream starts from other numbers than the source did, and may end in a closer place.
        is_scaled = rescale != "off" and "residual.scale" in description.spaces
        assert again <= distances[-1] * (1 + 1e-6) if is_scaled else again == pytest.approx(distances[-1], rel=1e-6)
    assert worth_repeating, "a second sweep must matter for some start, or this test shows nothing"


@pytest.mark.parametrize("start", ["known", "annealed", "as-is"])
def test_a_start_that_misleads_is_not_taken(start):
    """Alike but for shuffled embeddings: what the first pass makes of them is further away than the source."""
    anchor, _, description = pair("bert-sequence")
    goal = anchor.state_dict()
    planted = rigid(description, seed=4, names=("residual",))
    near = noisy(goal, 0.05, seed=4)
    source = {key: planted.apply_to(key, x) if "embeddings" in key else x for key, x in near.items()}
    options = MatchOptions(spaces=("all",), rescale="off", start=start, temperatures=2, sweeps=1)
    found = match_weights(source, goal, description, options)
    before, after = distance(source, goal), distance(found.apply(source), goal)
    if start == "known":
        assert found.elements == {}
    assert after <= before


def narrow_bert(seed: int) -> BertForSequenceClassification:
    """Post-norm, 64 wide, as initialised: matrices of spread 0.02, gains of exactly 1."""
    config = BertConfig(
        vocab_size=40, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=16,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    draw = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=draw))
    return model


def test_independent_models_are_annealed_although_their_gains_are_alike(monkeypatch):
    """Gains of 1 are most of the length of such models and the same in both; only matrices say who is related."""
    models = [narrow_bert(seed) for seed in (0, 1)]
    first, second = (model.state_dict() for model in models)
    steps = []
    annealing = annealed.anneal
    monkeypatch.setattr(annealed, "anneal", lambda *given: steps.append(given[2]) or annealing(*given))
    options = MatchOptions(("all",), rescale="off", start="annealed", relative=0.5, temperatures=3, sweeps=1)
    match_weights(first, second, blueprint(models[0]), options)
    assert steps == [3]
    near = {name: x + 0.002 * torch.randn(x.shape, generator=generator(2)) for name, x in first.items()}
    match_weights(near, first, blueprint(models[0]), options)
    assert steps == [3]
