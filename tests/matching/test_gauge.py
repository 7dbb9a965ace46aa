"""The balanced gauge: one form for every basis that a model may come in, whatever the ranks of what it holds."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.matching.gauge import balance
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Along, Concat, Fixed, Per
from fusionlab.symmetry.groups import Group, Invertible, Permutation, Rotary, Scale
from fusionlab.symmetry.roles import Role
from tests.symmetry.models import generator, laws

CLOSE = 1e-8
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**31)
rotary = [Rotary(4), Rotary(4, interleaved=True)]
random_groups = st.sampled_from([Invertible(4), *rotary, Scale(4), Scale(4, signed=True)])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def one_space(group: Group) -> Blueprint:
    """A map that writes to a space, and one that reads it; their features have no basis of their own."""
    return Blueprint(
        "pair",
        {"x": Space("x", group, "x")},
        {"writer": (Along("x", group.size), Fixed()), "reader": (Fixed(), Along("x", group.size, True))},
    )


def balanced(state: dict[str, Tensor], description: Blueprint) -> dict[str, Tensor]:
    return balance(state, description).apply(state)


@laws
@given(sizes, sizes, sizes, sizes, seeds)
def test_what_is_written_and_read_has_the_singular_values_of_the_product(size, written, read, rank, seed):
    """Both Gram matrices: those of reader times writer, and their mean for what only one of them has."""
    writer = normal(size, written, seed=seed)
    readers = normal(read, size, seed=seed + 1)
    if rank < size:
        # The reader sees little: a part of what is written is read by none.
        readers = readers @ torch.linalg.qr(normal(size, rank, seed=seed + 2)).Q @ normal(rank, size, seed=seed + 3)
    product = readers @ writer
    strengths = torch.linalg.svdvals(product)
    strengths = strengths[strengths > 1e-9 * strengths[0]]
    assume(float(strengths[-1]) > 1e-2 * float(strengths[0]))
    for first, second in ((writer, readers), (readers.mT, writer.mT)):
        state = balanced({"writer": first, "reader": second}, one_space(Invertible(size)))
        torch.testing.assert_close(
            state["reader"] @ state["writer"], second @ first, rtol=0, atol=CLOSE * float(strengths[0])
        )
        for gram, ranked in (
            (state["writer"] @ state["writer"].mT, torch.linalg.matrix_rank(first)),
            (state["reader"].mT @ state["reader"], torch.linalg.matrix_rank(second)),
        ):
            rest = strengths.mean().expand(int(ranked) - len(strengths))
            expected = torch.cat([strengths, rest, torch.zeros(size - int(ranked))]).sort().values
            found = torch.linalg.eigvalsh(gram)
            torch.testing.assert_close(found, expected, rtol=0, atol=CLOSE * float(strengths[0]))


@laws
@given(sizes, sizes, sizes, seeds)
def test_models_that_differ_by_their_basis_become_one_rotation_of_each_other(size, written, read, seed):
    """All inner products of what is written, and of what reads it, are the same from any basis."""
    description = one_space(Invertible(size))
    state = {"writer": normal(size, written, seed=seed), "reader": normal(read, size, seed=seed + 1)}
    moved = Alignment.random(description, generator(seed + 2)).apply(state)
    first, second = balanced(state, description), balanced(moved, description)
    strengths = torch.linalg.svdvals(state["reader"] @ state["writer"])
    assume(float(strengths[min(size, written, read) - 1]) > 1e-2 * float(strengths[0]))
    for products in ([s["writer"].mT @ s["writer"] for s in (first, second)],
                     [s["reader"] @ s["reader"].mT for s in (first, second)]):  # fmt: skip
        torch.testing.assert_close(products[0], products[1], rtol=0, atol=CLOSE * float(strengths[0]))


@laws
@given(random_groups, seeds)
def test_a_balanced_model_is_moved_by_nothing(group, seed):
    description = one_space(group)
    state = {"writer": normal(4, 3, seed=seed), "reader": normal(2, 4, seed=seed + 1)}
    once = balanced(state, description)
    for name, tensor in balanced(once, description).items():
        torch.testing.assert_close(tensor, once[name], rtol=0, atol=CLOSE * float(tensor.abs().max()))


@laws
@given(st.sampled_from([*rotary, Scale(4)]), seeds)
def test_factors_make_both_sides_as_long(group, seed):
    """Of every coordinate, or of every plane where one factor is all it has."""
    state = balanced({"writer": normal(4, 3, seed=seed), "reader": normal(2, 4, seed=seed + 1)}, one_space(group))
    squares = [state["writer"].square().sum(1), state["reader"].square().sum(0)]
    if isinstance(group, Rotary):
        squares = [torch.stack(group.planes(x.unsqueeze(-1))).sum((0, -1)) for x in squares]
    torch.testing.assert_close(squares[0], squares[1])


@pytest.mark.parametrize("group", [Invertible(4), Rotary(4), Scale(4)], ids=str)
@pytest.mark.parametrize("dead", ["writer", "reader"])
def test_what_is_never_read_or_written_at_all_keeps_its_basis(group, dead):
    """A dead head has no balanced form; a factor of one side would be arbitrary."""
    state = {"writer": normal(4, 3, seed=0), "reader": normal(2, 4, seed=1)}
    state[dead] = torch.zeros_like(state[dead])
    after = balanced(state, one_space(group))
    for name, tensor in state.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-15)


def heads(groups: int, shared: int, size: int) -> Blueprint:
    """Grouped queries: every value head is read by several query heads, whose order inside a group is free."""
    spaces = [
        Space("groups", Permutation(groups), "groups"),
        Space("queries", Permutation(shared), "queries", index=("groups",), copies=(groups,)),
        Space("x", Invertible(size), "x", index=("groups",), copies=(groups,)),
    ]
    reading = Per("groups", groups, Per("queries", shared, Along("x", size, True)))
    parameters = {"writer": (Per("groups", groups, Along("x", size)), Fixed()), "reader": (Fixed(), reading)}
    return Blueprint("grouped", {space.name: space for space in spaces}, parameters)


def test_every_head_that_reads_a_value_counts():
    """The reader's Gram matrix is summed over the query heads of a group, for each group by itself."""
    groups, shared, size = 2, 3, 4
    state = {"writer": normal(groups * size, 7, seed=0), "reader": normal(5, groups * shared * size, seed=1)}
    after = balanced(state, heads(groups, shared, size))
    writer = after["writer"].unflatten(0, (groups, size))
    reader = after["reader"].unflatten(1, (groups, shared, size))
    for group in range(groups):
        read = sum(reader[:, group, query].mT @ reader[:, group, query] for query in range(shared))
        torch.testing.assert_close(writer[group] @ writer[group].mT, read)


def test_a_dead_head_leaves_the_others_balanced():
    groups, size = 3, 4
    state = {"writer": normal(groups * size, 7, seed=0), "reader": normal(5, groups * size, seed=1)}
    state["reader"][:, size : 2 * size] = 0
    after = balanced(state, heads(groups, 1, size))
    writer, reader = after["writer"].unflatten(0, (groups, size)), after["reader"].unflatten(1, (groups, size))
    for group in (0, 2):
        torch.testing.assert_close(writer[group] @ writer[group].mT, reader[:, group].mT @ reader[:, group])
    torch.testing.assert_close(writer[1], state["writer"].unflatten(0, (groups, size))[1])


def test_spaces_on_one_parameter_are_balanced_together():
    """A map between two spaces counts for both; a segment of it that belongs to no space counts for the other."""
    spaces = {name: Space(name, Invertible(size), name) for name, size in (("x", 3), ("y", 2))}
    between = Concat(Along("y", 2), Fixed(2))
    parameters = {
        "in": (Along("x", 3), Fixed()),
        "between": (between, Along("x", 3, True)),
        "out": (Fixed(), Along("y", 2, True)),
    }
    state = {"in": normal(3, 5, seed=0), "between": normal(4, 3, seed=1), "out": normal(6, 2, seed=2)}
    after = balanced(state, Blueprint("chain", spaces, parameters))
    torch.testing.assert_close(after["in"] @ after["in"].mT, after["between"].mT @ after["between"])
    torch.testing.assert_close(after["between"][:2] @ after["between"][:2].mT, after["out"].mT @ after["out"])


def test_badly_conditioned_heads_are_balanced_as_well():
    """What rounding leaves after the first step, the next takes away."""
    state = {"writer": normal(4, 6, seed=0), "reader": normal(5, 4, seed=1)}
    state["writer"][0] *= 1e-5
    after = balanced(state, one_space(Invertible(4)))
    first, second = after["writer"] @ after["writer"].mT, after["reader"].mT @ after["reader"]
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


@laws
@given(st.integers(2, 6), st.integers(2, 6), seeds, st.booleans())
def test_gains_of_a_stream_become_one_whatever_they_were(size, read, seed, is_bias):
    """With the bias beside them one long, where there is one: what reads them takes up the rest, the product stays."""
    factor = (Per("stream", size, Along("scale", 1)),)
    description = Blueprint(
        "stream",
        {
            "stream": Space("stream", Permutation(size), Role.RESIDUAL),
            "scale": Space("scale", Scale(1), Role.RESIDUAL_SCALE, None, ("stream",), (size,)),
        },
        {"gain": factor, "reader": (Fixed(), factor[0].dual())} | ({"bias": factor} if is_bias else {}),
    )
    state = {"gain": normal(size, seed=seed), "reader": normal(read, size, seed=seed + 1)}
    state |= {"bias": normal(size, seed=seed + 2)} if is_bias else {}
    assume(float(state["gain"].abs().min()) > 1e-3)
    twin = Alignment.random(description, generator(seed)).apply(state)
    for start in (state, twin):
        one = balanced(start, description)
        squares = one["gain"].square() + (one["bias"].square() if is_bias else 0)
        torch.testing.assert_close(squares, torch.ones_like(squares))
        torch.testing.assert_close(one["reader"] * one["gain"], start["reader"] * start["gain"])
