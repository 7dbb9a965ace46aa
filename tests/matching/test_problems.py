"""Which spaces are solved together, and what is correlated for each."""

import pytest
import torch

from fusionlab.matching.blocks import Block, blocks, waves
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation, unit_rows
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from tests.symmetry.blueprints import nested_blueprint, nested_state
from tests.symmetry.infer.cases.experts import SAMPLES as EXPERTS
from tests.symmetry.models import generator, random_model

MODEL = random_model("bert-sequence")
BERT = blueprint(MODEL)
SOURCE, ANCHOR = MODEL.state_dict(), random_model("bert-sequence", seed=1).state_dict()
PROBLEM = Problem(BERT, SOURCE, ANCHOR)


def found(*roles: str, layers: str = "all") -> list[Block]:
    return blocks(MatchOptions(spaces=roles, layers=layers).select(BERT), BERT)


def names(block: Block) -> tuple[str, ...]:
    return tuple(space.name for space in block.spaces)


def test_heads_take_their_rotations_along_and_rotations_alone_stand_alone():
    assert [names(b) for b in found("heads", "attention", layers="0")] == [
        ("layers.0.heads", "layers.0.qk", "layers.0.vo")
    ]
    assert [names(b) for b in found("attention", "ffn", layers="0")] == [
        ("layers.0.qk",),
        ("layers.0.vo",),
        ("layers.0.ffn",),
        ("ffn", "ffn.signs"),
    ]
    assert [names(b) for b in found("heads", "attention.vo", layers="1")] == [("layers.1.heads", "layers.1.vo")]
    assert [names(b) for b in found("heads", layers="1")] == [("layers.1.heads",)]


def test_spaces_inside_of_a_permutation_that_others_index_are_solved_apart():
    """Pairs of copies are compared inside one permutation only."""
    nested = nested_blueprint()
    every = blocks(tuple(nested.spaces.values()), nested)
    assert [names(b) for b in every] == [("groups", "shared"), ("members",), ("each",), ("flat",)]


def of_layer(model: str, *roles: str) -> list[Block]:
    """The blocks of layer 1 of a mixture of experts."""
    sample = next(sample for sample in EXPERTS if sample.name == model)
    description = blueprint(sample.build())
    return blocks(MatchOptions(spaces=roles, layers="1").select(description), description)


def test_experts_take_their_units_along():
    """Groups of experts too; units of an expert that is used by all tokens stand alone, and all do without experts."""
    at = "layers.1"
    grouped, shared = of_layer("deepseek_v3", "experts", "ffn")
    assert names(shared) == (f"{at}.mlp.shared_experts.ffn", f"{at}.mlp.shared_experts.ffn.scale")
    assert names(grouped)[:1] == (f"{at}.expert_groups",)
    (experts,) = grouped.nested
    assert names(experts)[:1] == (f"{at}.experts",)
    (units,) = experts.nested
    assert (names(units), units.nested) == ((f"{at}.mlp.experts.ffn", f"{at}.mlp.experts.ffn.scale"), ())
    assert [block.is_units for block in (grouped, experts, units)] == [False, False, True]
    (alone,) = of_layer("mixtral", "ffn")
    assert names(alone) == (f"{at}.ffn", f"{at}.ffn.scale")
    assert [names(block) for block in of_layer("mixtral", "experts")] == [(f"{at}.experts",)]


def test_queries_go_with_their_heads_only_where_no_basis_lies_in_both():
    at = "layers.1"
    assert [names(block) for block in of_layer("mixtral", "heads")] == [(f"{at}.heads", f"{at}.queries")]
    apart = [names(block) for block in of_layer("mixtral", "heads", "attention")]
    assert apart == [(f"{at}.heads", f"{at}.qk", f"{at}.vo"), (f"{at}.queries",)]


def test_what_experts_hold_is_cut_once():
    """Tensors (experts, units, features) say all of experts by their units; the router is all that is left."""
    (block,) = of_layer("gpt_oss", "experts", "ffn")
    sample = next(sample for sample in EXPERTS if sample.name == "gpt_oss")
    model = sample.build()
    state = model.state_dict()
    problem = Problem(blueprint(model), state, state, unknown=block.names)
    rows = [source for source, _ in unit_rows(problem, block, block.names)]
    # Rows of the router and its bias, and the bias that no unit writes.
    assert sorted(tuple(x.shape) for x in rows) == [(5, 1), (5, 24), (5, 24)]
    (units,) = block.nested
    inside = [source for source, _ in unit_rows(problem, units, block.names)]
    assert sorted(tuple(x.shape) for x in inside) == [(5, 28, 2), (5, 28, 24), (5, 28, 48)]
    held = sum(state[n].numel() for n in state if n.startswith("model.layers.1.mlp."))
    assert sum(x.numel() for x in (*rows, *inside)) == held


def test_only_the_residual_stream_couples_blocks():
    """Without it everything is solved once; with it, it is solved apart from all others."""
    everything_else = found("heads", "attention", "ffn")
    assert waves(everything_else, BERT) == [everything_else]
    first, second = waves(found("all"), BERT)
    assert [names(b) for b in first] == [("residual", "residual.scale")]
    assert second == everything_else


def test_blocks_on_segments_of_one_axis_are_not_coupled_but_across_dimensions_they_are():
    """timm's fused projection holds queries, keys and values side by side."""
    fused = blueprint(random_model("timm-plain"))
    attention = blocks(MatchOptions(spaces=("attention",)).select(fused), fused)
    assert waves(attention, fused) == [attention]
    nested = nested_blueprint()
    assert [[names(b) for b in wave] for wave in waves(blocks(tuple(nested.spaces.values()), nested), nested)] == [
        [("groups", "shared")],
        [("members",)],
        [("each",)],
        [("flat",)],
    ]


def dense(order: torch.Tensor) -> torch.Tensor:
    return torch.eye(len(order), dtype=torch.float64)[order]


def test_correlation_of_units_is_the_papers_cost_matrix():
    """C = Wi2 Wi1^T + bi2 bi1^T + Wo2^T Wo1: writers, their biases and readers."""
    block, _ = found("ffn", layers="0")
    at = "bert.encoder.layer.0"
    up, bias, down = f"{at}.intermediate.dense.weight", f"{at}.intermediate.dense.bias", f"{at}.output.dense.weight"
    expected = ANCHOR[up] @ SOURCE[up].T + torch.outer(ANCHOR[bias], SOURCE[bias]) + ANCHOR[down].T @ SOURCE[down]
    correlation, bound = correlate_permutation(PROBLEM, block)
    torch.testing.assert_close(correlation, expected)
    assert bool((bound[:, None] >= correlation.abs()).all())
    rounded, _ = correlate_permutation(PROBLEM, block, torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    assert bool(((rounded.double() - expected).abs() <= 3.1 * 2**-8 * bound[:, None]).all())


@pytest.mark.parametrize(("kind", "key"), [("qk", "key"), ("vo", "value")])
def test_correlation_of_heads_is_the_papers_matrix(kind, key):
    """For each head W_Q2 W_Q1^T + b b^T and W_K2 W_K1^T + b b^T; values, and outputs transposed."""
    (block,) = found(f"attention.{kind}", layers="1")
    at = "bert.encoder.layer.1.attention"
    found_here = correlate_inner(PROBLEM, block, block.inner[0])

    def rows(state: dict, name: str) -> torch.Tensor:
        if name == "output":
            return state[f"{at}.output.dense.weight"].T.unflatten(0, (3, 8))
        weight, bias = state[f"{at}.self.{name}.weight"], state[f"{at}.self.{name}.bias"]
        return torch.cat([weight, bias[:, None]], 1).unflatten(0, (3, 8))

    first, second = ("query", key) if kind == "qk" else (key, "output")
    torch.testing.assert_close(found_here.primal, rows(ANCHOR, first) @ rows(SOURCE, first).mT)
    torch.testing.assert_close(found_here.dual, rows(ANCHOR, second) @ rows(SOURCE, second).mT)
    torch.testing.assert_close(found_here.primal_norm, rows(SOURCE, first).square().sum(-1))
    torch.testing.assert_close(found_here.dual_norm, rows(SOURCE, second).square().sum(-1))


def test_with_heads_every_pair_is_correlated():
    """Entry (i, j) is what head j of the source has in common with head i of the anchor."""
    (alone,) = found("attention.qk", layers="0")
    (block,) = found("heads", "attention.qk", layers="0")
    for shift in range(3):
        order = torch.arange(3).roll(shift)
        moved = Alignment(BERT, {"layers.0.heads": order}).apply(SOURCE)
        expected = correlate_inner(Problem(BERT, moved, ANCHOR), alone, alone.inner[0])
        pairs = correlate_inner(PROBLEM, block, block.inner[0])
        for field in ("primal", "dual", "primal_norm", "dual_norm"):
            torch.testing.assert_close(getattr(pairs, field)[torch.arange(3), order], getattr(expected, field))


@pytest.mark.parametrize("name", ["each", "shared", "flat"])
def test_correlation_predicts_the_distance_in_nested_blocks(name):
    """Moving one space of the nested blueprint changes the squared distance by twice <G - 1, C>."""
    nested = nested_blueprint()
    source, anchor = nested_state(0), nested_state(1)
    space = nested.spaces[name]
    drawn = Alignment.random(nested, generator(0)).elements[name]
    if name == "each":
        drawn = torch.linalg.qr(drawn).Q
    moved = Alignment(nested, {name: drawn}).apply(source)
    gain = (squared(source, anchor) - squared(moved, anchor)) / 2
    block = next(b for b in blocks((space,), nested) if name in b.names)
    if block.permutation is None:
        correlation = correlate_inner(Problem(nested, source, anchor), block, space)
        total = correlation.primal + correlation.dual
        predicted = ((drawn - space.group.identity(space.copies)) * total).sum()
    else:
        total, _ = correlate_permutation(Problem(nested, source, anchor), block)
        predicted = ((dense(drawn) - torch.eye(space.group.size)) * total).sum()
    assert float(predicted) == pytest.approx(float(gain), rel=1e-9)


def squared(first: dict, second: dict) -> float:
    return sum(float((first[key] - second[key]).square().sum()) for key in first)


def test_no_parameter_in_common_means_no_correlation():
    """A space whose only stretches belong to its inner spaces correlates nothing directly."""
    (block,) = found("heads", "attention", layers="0")
    correlation, bound = correlate_permutation(PROBLEM, block)
    assert correlation.shape == (3, 3)
    assert not correlation.any()
    assert not bound.any()


def test_stretches_are_the_same_of_both_models():
    pairs = PROBLEM.stretches(["layers.0.ffn"], frozenset({"layers.0.ffn"}))
    assert [(a.space, a.path, tuple(a.view.shape)) for a, _ in pairs] == [
        ("layers.0.ffn", (), (40, 24)),
        ("layers.0.ffn", (), (40, 1)),
        ("layers.0.ffn", (), (40, 24)),
    ]
    assert all((a.space, a.path, a.view.shape) == (b.space, b.path, b.view.shape) for a, b in pairs)


def test_stretches_that_run_through_an_unknown_space_say_nothing_unless_there_are_no_others():
    """With the residual stream unknown, only the bias of the hidden units is left; of the stream, all that is fixed."""
    ffn, stream = "layers.0.ffn", "residual"
    unknown = frozenset({ffn, stream})
    here = Problem(BERT, SOURCE, ANCHOR, unknown)
    assert [tuple(a.view.shape) for a, _ in here.stretches([ffn], frozenset({ffn}))] == [(40, 1)]
    touching = len(list(PROBLEM.stretches([stream], frozenset({stream}))))
    assert len(list(here.stretches([stream], frozenset({stream})))) == touching - 2
    output = "layers.1.vo"
    blind = Problem(BERT, SOURCE, ANCHOR, frozenset({stream, "layers.1.heads", output}))
    assert len(list(blind.stretches([output], frozenset({output})))) == 3


def test_blueprint_without_the_space_gives_no_problem():
    empty = Blueprint("empty", {}, {})
    assert blocks((), BERT) == []
    assert waves([], empty) == []
