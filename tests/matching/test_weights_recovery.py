"""Weight matching finds a model again that was hidden behind an alignment, and noise it was blurred by stays."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    DebertaConfig,
    DebertaForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import match_weights
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.groups import Permutation, Signs
from tests.families.harness import Case, check_hidden_model_is_found
from tests.matching.pairs import UNCOUPLED, distance, noisy, norm, pair
from tests.parts import one_in
from tests.symmetry.models import CASES, HEADS, generator, moving_all, rigid


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("roles", [("attention", "ffn"), ("heads", "attention", "ffn"), ("heads", "ffn")])
def test_planted_alignment_is_recovered(name, roles):
    """A model hidden behind rotations and permutations comes back to distance zero."""
    anchor, _, description = pair(name)
    planted = rigid(description, seed=3, names=tuple(r for r in UNCOUPLED if r.split(".")[0] in roles))
    source = planted.apply(anchor.state_dict())
    assert distance(source, anchor.state_dict()) > 0.1 * norm(source)
    found = match_weights(source, anchor.state_dict(), description, MatchOptions(spaces=roles, rescale="off"))
    assert distance(found.apply(source), anchor.state_dict()) < 1e-10 * norm(source)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not n.endswith("-model")])
def test_planted_permutation_of_the_residual_stream_is_recovered(name):
    anchor, _, description = pair(name)
    source = rigid(description, seed=3, names=("residual",)).apply(anchor.state_dict())
    found = match_weights(source, anchor.state_dict(), description, MatchOptions(spaces=("residual",)))
    assert distance(found.apply(source), anchor.state_dict()) == 0


@pytest.mark.parametrize("rescale", ["sequential", "joint"])
@pytest.mark.parametrize("name", CASES)
def test_planted_rotation_and_scale_are_recovered(name, rescale):
    anchor, _, description = pair(name)
    planted = rigid(description, seed=3, names=("attention.qk", "attention.vo"))
    scales = torch.randn(len(planted.elements), HEADS, 1, 1, generator=generator(4), dtype=torch.float64).exp()
    scaled = {space: a * element for a, (space, element) in zip(scales, planted.elements.items(), strict=True)}
    source = Alignment(description, scaled).apply(anchor.state_dict())
    options = MatchOptions(spaces=("attention",), rescale="off")
    rotated = match_weights(source, anchor.state_dict(), description, options).apply(source)
    assert distance(rotated, anchor.state_dict()) > 0.05 * norm(source)
    found = match_weights(source, anchor.state_dict(), description, replace(options, rescale=rescale))
    assert distance(found.apply(source), anchor.state_dict()) < 1e-7 * norm(source)


@pytest.mark.parametrize("roles", [("attention", "ffn"), ("heads", "attention", "ffn")])
@pytest.mark.parametrize("name", CASES)
def test_no_nearby_or_swapped_alignment_is_better(name, roles):
    """Planted and blurred by noise: every small rotation and every exchange of two units or heads loses."""
    anchor, _, description = pair(name)
    source = noisy(
        rigid(description, seed=3, names=UNCOUPLED[("heads" not in roles) :]).apply(anchor.state_dict()), 0.1
    )
    goal = anchor.state_dict()
    found = match_weights(source, goal, description, MatchOptions(spaces=roles, rescale="off"))
    matched = found.apply(source)
    best = distance(matched, goal)
    assert best < 0.12 * norm(goal)
    draw = generator(6)
    for space in (s for s in description.spaces.values() if s.name in found.elements):
        for _ in range(3):
            rival = Alignment(description, {space.name: _nudge(space, draw)})
            assert distance(rival.apply(matched), goal) > best, space.name


def _nudge(space, draw: torch.Generator) -> Tensor:
    """An element next to the identity: two units exchanged, one turned round, or a small rotation of every copy."""
    identity = space.group.identity(space.copies)
    if isinstance(space.group, Signs):
        identity[..., 0, :] *= -1
        return identity
    if isinstance(space.group, Permutation):
        i, j = torch.randperm(space.group.size, generator=draw)[:2]
        identity[i], identity[j] = identity[j].clone(), identity[i].clone()
        return identity
    skew = 0.05 * torch.randn(identity.shape, generator=draw, dtype=torch.float64)
    return torch.linalg.matrix_exp(skew - skew.mT)


TEXT = {"num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 40, "vocab_size": 50}
UNSHARED = {**TEXT, "hidden_size": 36, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}


def deberta(positions: int) -> nn.Module:
    return DebertaForSequenceClassification(DebertaConfig(**UNSHARED, max_position_embeddings=positions))


def deberta_v2(positions: int) -> nn.Module:
    config = DebertaV2Config(**UNSHARED, max_position_embeddings=positions, share_att_key=False, conv_kernel_size=3)
    return DebertaV2ForSequenceClassification(config)


def t5(head: int) -> nn.Module:
    config = T5Config(d_model=8, d_kv=head, num_heads=2, num_layers=2, d_ff=20, vocab_size=40)
    return T5ForConditionalGeneration(config)


def electra(words: int) -> nn.Module:
    config = ElectraConfig(
        **{**TEXT, "vocab_size": words}, hidden_size=24, embedding_size=16, max_position_embeddings=5, type_vocab_size=2
    )
    return ElectraForSequenceClassification(config)


@pytest.mark.parametrize(
    ("build", "size", "seed"),
    one_in(4, [
        (deberta, 4, 0), (deberta, 18, 0), (deberta_v2, 16, 1), (electra, 6, 1), (t5, 9, 2), (t5, 16, 2),
    ]),
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_spaces_wider_than_what_is_written_to_them_are_recovered(build, size, seed):
    """Fewer relative positions than features, heads wider than the stream, fewer words than an embedding is wide."""
    check_hidden_model_is_found(Case("", lambda: build(size), ()), preset("weights"), seed)


def test_noise_on_a_planted_alignment_of_all_spaces_is_undone():
    """Near pair, everything moved at once but the residual stream: only the noise is left."""
    anchor, _, description = pair()
    goal = anchor.state_dict()
    source = noisy(rigid(description, seed=3, names=UNCOUPLED).apply(goal), 0.1)
    found = match_weights(source, goal, description, MatchOptions(spaces=("all",), rescale="off")).apply(source)
    assert distance(found, goal) < 0.12 * norm(goal)


def test_result_does_not_depend_on_where_the_source_stands():
    """An uncoupled optimum is one for the whole orbit: a re-based source is brought to the same place."""
    source, anchor, description = pair()
    goal = anchor.state_dict()
    options = MatchOptions(spaces=("heads", "attention", "ffn"), rescale="joint")
    moved = rigid(description, seed=9, names=UNCOUPLED).apply(source.state_dict())
    here = match_weights(source.state_dict(), goal, description, options).apply(source.state_dict())
    there = match_weights(moved, goal, description, options).apply(moved)
    assert distance(here, there) < 1e-6 * norm(here)


def test_random_alignment_is_no_optimum():
    """The distance does depend on the basis: a random one is further away than what matching finds."""
    source, anchor, description = pair()
    found = match_weights(source.state_dict(), anchor.state_dict(), description, preset("paper"))
    matched = distance(found.apply(source.state_dict()), anchor.state_dict())
    for seed in range(3):
        elsewhere = moving_all(description, seed).apply(source.state_dict())
        assert distance(elsewhere, anchor.state_dict()) > matched
