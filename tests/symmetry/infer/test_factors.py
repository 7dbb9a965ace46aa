"""Several sets of factors along one space: one for each gain of a stream that cannot be folded."""

import itertools
import random
from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fusionlab.matching.align import align_states
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance, squared_length
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.evidence import Outcome
from fusionlab.symmetry.groups import Permutation, Scale, Signs
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.dims import Variable
from fusionlab.symmetry.infer.found import Action, Found, drop_contained
from fusionlab.symmetry.infer.solutions import apart, integers, is_independent
from fusionlab.symmetry.infer.trace import generic
from fusionlab.symmetry.plain import dumps, loads
from fusionlab.symmetry.roles import Role
from tests.symmetry.infer.networks.demand import places_of
from tests.symmetry.models import laws


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 7), nn.Linear(7, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.down(torch.tanh(self.up(self.norm(x))))


class Tied(nn.Module):
    """Blocks beside a stream whose table reads it too, so that no gain can be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.table.weight.T


IDS = {"ids": torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(3))}


def described() -> Blueprint:
    return infer(Tied(), IDS, "tied")


def test_each_gain_has_factors_against_what_reads_or_writes_it() -> None:
    """Named by the gain; the last norm has none, since its reader writes the stream. Writers and gains are primal."""
    found = described()
    factors = {name: space for name, space in found.spaces.items() if space.role == Role.RESIDUAL_SCALE}
    assert {(space.group, space.index) for space in factors.values()} == {(Scale(1, signed=True), ("residual",))}
    at = {name: places_of(found, name) for name in factors}
    for i in range(2):
        norm, scale = (f"residual.layers.{i}.{name}.scale" for name in ("norm", "scale"))
        block = f"blocks.{i}"
        assert at.pop(norm) == {(f"{block}.norm.weight", 0), (f"{block}.norm.bias", 0), (f"{block}.up.weight", 1)}
        assert at.pop(scale) == {(f"{block}.scale", 0), (f"{block}.down.weight", 0), (f"{block}.down.bias", 0)}
        assert [t.outcome for t in found.trials[norm] if t.group == Scale(1, signed=True)] == [Outcome.TAKEN]
    assert at == {}
    assert loads(dumps(found)) == found


def test_a_twin_with_stretched_gains_is_found_again() -> None:
    """By the preset, whose gauge makes gains one: element for element random, signs and factors of streams included."""
    found = described()
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in Tied().double().state_dict().items()}
    twin = Alignment.random(found, torch.Generator().manual_seed(7)).apply(state)
    alignments = align_states([twin, state], found, preset("weights"), anchor=1)
    back, goal = (alignment.apply(s) for alignment, s in zip(alignments, (twin, state), strict=True))
    assert squared_distance(twin, state) > 0.05 * squared_length(state)
    assert squared_distance(back, goal) < 1e-20 * squared_length(goal)


def test_a_factor_that_does_not_hold_is_left_out_alone() -> None:
    """Of a network that computes with one gain twice, the other factors stay."""

    class Seen(Tied):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids) * self.blocks[0].norm.weight.square().sum()

    names = {name for name, space in infer(Seen(), IDS, "seen").spaces.items() if space.role == Role.RESIDUAL_SCALE}
    whole = {name for name, space in described().spaces.items() if space.role == Role.RESIDUAL_SCALE}
    assert whole - names == {"residual.layers.0.norm.scale"}
    assert names <= whole


@laws
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_solutions_apart_from_all_others_do_not_depend_on_the_order(sizes: list[int], seed: int) -> None:
    """One for each part, and of three that share stretches one with the two."""
    stretches = [("x", 0, i) for i in range(sum(sizes) + 3)]
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [stretches[start:end] for start, end in itertools.pairwise(ends)]
    wanted = [{s: Fraction(1 - 2 * (i % 2)) for i, s in enumerate(part)} for part in parts]
    gate, values, down = stretches[-3:]
    solutions = [*wanted, {gate: Fraction(1), down: Fraction(-1)}, {values: Fraction(1), down: Fraction(-1)}]
    random.Random(seed).shuffle(solutions)
    found = list(apart(solutions))
    assert [one for one in found if down not in one and gate not in one] == [
        {s: int(power) for s, power in one.items()} for one in solutions if one in wanted
    ]
    assert all(len(one) == 2 for one in found if down in one)


def test_what_finer_factors_hold_is_no_factor_of_whole_blocks() -> None:
    """A factor of each head on gains that have one for each feature of each head; other parameters keep theirs."""
    heads, features = Variable(3), Variable(4)
    gains, others = ("gain", 0, 0), ("other", 0, 0)
    one = Found(heads, (gains, others), permutation=Action(Permutation(3), {gains: 1}, ()))
    one.factors = [Action(Scale(1, signed=True), {at: 1}, ()) for at in (gains, others)]
    one.signs = Action(Signs(1), {others: 1}, ())
    finer = Found(features, (("gain", 0, 1),), basis=Action(Scale(4, signed=True), {("gain", 0, 1): 1}, (heads,)))
    drop_contained([one, finer])
    assert [set(action.powers) for action in one.factors] == [{others}]
    assert (one.signs, finer.basis) != (None, None)


@laws
@given(seed=st.integers(0, 2**31), count=st.integers(1, 4), modulo_two=st.booleans())
def test_powers_are_independent_as_ranks_say(seed: int, count: int, modulo_two: bool) -> None:
    draw = random.Random(seed)
    stretches = [("x", 0, i) for i in range(4)]
    rows = [[draw.choice((-2, -1, 0, 0, 1, 2)) for _ in stretches] for _ in range(count + 1)]
    vectors = [{s: p for s, p in zip(stretches, row, strict=True) if p} for row in rows]
    combinations = itertools.product((0, 1), repeat=count)
    if modulo_two:
        sums = [
            [sum(c * row[i] for c, row in zip(chosen, rows, strict=False)) % 2 for i in range(4)]
            for chosen in combinations
        ]
        wanted = [p % 2 for p in rows[-1]] not in sums
    else:
        ranks = [int(torch.linalg.matrix_rank(torch.tensor(some, dtype=torch.float64))) for some in (rows[:-1], rows)]
        wanted = ranks[1] > ranks[0]
    assert is_independent(vectors[-1], vectors[:-1], modulo_two) == wanted


def test_powers_are_the_smallest_integers() -> None:
    up, down = ("up", 0, 0), ("down", 1, 0)
    assert integers({down: Fraction(1), up: Fraction(-1, 2)}) == {down: 2, up: -1}
    assert integers({down: Fraction(-3), up: Fraction(6)}) == {down: 1, up: -2}


def test_factors_that_meet_have_copies_by_the_same_spaces() -> None:
    """Signs that each head has for itself are not beside a factor that heads share, unless they share no stretch."""
    heads, units = Variable(3), Variable(4)
    up, down, other = (("up", 0, 0), ("down", 1, 0), ("other", 0, 0))
    one = Found(units, (up, down, other), permutation=Action(Permutation(4), {up: 1, down: 1}, ()))
    one.factors = [Action(Scale(1), {up: 1, down: -1}, ())]
    assert not one.admits(Action(Signs(1), {up: 1}, (heads,)))
    assert one.admits(Action(Signs(1), {up: 1}, ()))
    assert one.admits(Action(Signs(1), {other: 1}, (heads,)))
