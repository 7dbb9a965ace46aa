"""Experts that change places with the rows of their router: what structure proposes is kept where outputs stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice

import torch
from torch import Tensor, fx, nn

from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.dims import Atom, Sum, Variable, atoms, size_of
from fusionlab.symmetry.infer.entries import Bundle, proposed
from fusionlab.symmetry.infer.interpreter import Reading, operation_of
from fusionlab.symmetry.infer.trace import Plain, Traced
from fusionlab.symmetry.stacks import Stacks, apart, stacked

# Sets of parameters around one list of experts that are tried in one module, at most.
_MOST_TRIED = 48
_RANDOM_ORDERS = 4

Same = Callable[[Mapping[str, Tensor]], bool]


def exchangeable(traced: Traced, model: nn.Module) -> list[Bundle]:
    """Experts with all that has to change places with them, shown by a cycle and by an exchange of two.

    Args:
        traced: a model, without stacks.
        model: the same, which is asked where its graph holds for one choice of experts only.
    """
    seeds = proposed(traced)
    if not seeds:
        return []
    same, found, taken = _Comparison(traced, model), list[Bundle](), set[str]()
    for seed in seeds:
        if taken.isdisjoint(seed.names):
            others = [one for one in seeds if one is not seed and (taken | seed.names).isdisjoint(one.names)]
            together = _together(traced, seed, others, same)
            if together is not None:
                found.append(together)
                taken |= together.names
    return found


class _Comparison:
    """A model's outputs with other parameters, compared with its own."""

    def __init__(self, traced: Traced, model: nn.Module) -> None:
        self.traced, self.model = traced, model
        self.expected = traced(traced.state)
        self.plain: Plain | None = None

    def __call__(self, state: Mapping[str, Tensor]) -> bool:
        # The graph holds for what the model's own parameters chose: which experts, and how many tokens for each.
        return self._is_expected(self.traced, state) or self._is_expected(self._run, state)

    def _run(self, state: Mapping[str, Tensor]) -> Tensor:
        self.plain = self.plain or Plain(self.model)
        return self.plain.kept(state, self.traced.inputs)

    def _is_expected(self, compute: Callable[[Mapping[str, Tensor]], Tensor], state: Mapping[str, Tensor]) -> bool:
        try:
            out = compute(state)
        except Exception:  # anything may be raised by a model's own code
            return False
        bound = EXACT * self.expected.abs().max()
        return out.shape == self.expected.shape and bool((out - self.expected).abs().max() <= bound)


def _together(traced: Traced, seed: Bundle, others: Sequence[Bundle], same: Same) -> Bundle | None:
    """The fewest parameters that some experts may change places with; looked for in their module, then around it."""
    module, known = seed.first.partition("*")[0], list[Bundle]()
    while module:
        module = module.rstrip(".").rpartition(".")[0]
        inside = f"{module}." if module else ""
        beside = [one for one in others if one.count == seed.count and one.first.startswith(inside)]
        around = {name for one in (seed, *beside) for name in one.names}
        lengths = {seed.count, *(traced.state[name].shape[dim] for name, dim in seed.places)}
        for length in sorted(lengths):
            beside += _rows(traced, inside, seed.count, length, around)
        if new := [one for one in beside if one not in known]:
            for chosen in islice(_sets(beside, new), _MOST_TRIED):
                together = _joined((seed, *chosen))
                for one in () if together is None else _grouped(together):
                    if all(same(moved) for moved in _moved(traced, one)):
                        return one
        known = beside
    return None


def _sets(beside: Sequence[Bundle], new: Sequence[Bundle]) -> Iterator[tuple[Bundle, ...]]:
    """The sets of bundles that some new one is among, small ones first."""
    every = chain.from_iterable(combinations(beside, size) for size in range(1, len(beside) + 1))
    return (chosen for chosen in every if any(one in new for one in chosen))


def _rows(traced: Traced, inside: str, count: int, length: int, without: set[str]) -> list[Bundle]:
    """The dimensions of one length, by module: first or last ones where a parameter has several.

    Args:
        inside: the beginning of their names.
        count: how many experts there are; a router may have rows for some that have no parameters.
        length: of the dimensions.
        without: parameters that are experts'.
    """
    by_module: dict[str, dict[str, list[int]]] = {}
    for name, tensor in traced.state.items():
        if name.startswith(inside) and name not in without:
            dims = [dim for dim, size in enumerate(tensor.shape) if size == length]
            if dims:
                by_module.setdefault(name.rpartition(".")[0], {})[name] = dims
    found = []
    for dims_of in by_module.values():
        for end in (0, -1):
            rows = Bundle({}, tuple((name, dims[end]) for name, dims in dims_of.items()), count)
            found += [rows] if rows not in found else []
    return found


def _joined(bundles: Sequence[Bundle]) -> Bundle | None:
    """Several bundles as one; None where one parameter is in two of them."""
    names = [name for one in bundles for name in one.names]
    if len(set(names)) < len(names):
        return None
    stacks = {name: entries for one in bundles for name, entries in one.stacks.items()}
    return Bundle(stacks, tuple(place for one in bundles for place in one.places), bundles[0].count)


def _grouped(together: Bundle) -> Iterator[Bundle]:
    """The same entries by themselves, and in groups of every size, as some routers choose groups first."""
    count = together.count
    for groups in (1, *(number for number in range(2, count // 2 + 1) if count % number == 0)):
        yield replace(together, groups=groups)


def _orders(together: Bundle) -> Iterator[Tensor]:
    """Orders of entries: of those of the first group, and of the groups as wholes, which make all; and random ones."""
    every = torch.arange(together.count).unflatten(0, (together.groups, -1))
    for places in (every[0], every):
        if len(places) > 1:
            shifts = (places.roll(1, 0), torch.cat([places[:2].flip(0), places[2:]]))
            for moved in shifts[: len(places) - 1]:
                order = every.clone()
                order[: len(moved) if moved.ndim > 1 else 1] = moved
                yield order.flatten()
    # What a router bars may seldom be what it would have chosen, so that one order or other changes nothing by chance.
    draw = torch.Generator().manual_seed(0)
    for _ in range(_RANDOM_ORDERS):
        inside = torch.stack([row[torch.randperm(len(row), generator=draw)] for row in every])
        yield inside[torch.randperm(len(every), generator=draw)].flatten()


def _moved(traced: Traced, together: Bundle) -> Iterator[dict[str, Tensor]]:
    """The parameters with entries in other orders: moved on by one, and with the first two exchanged."""
    for order in _orders(together):
        moved = {name: _reordered(traced.state[name], dim, order) for name, dim in together.places}
        for entries in together.stacks.values():
            moved |= {name: traced.state[entries[int(at)]] for name, at in zip(entries, order, strict=True)}
        yield {**traced.state, **moved}


def _reordered(tensor: Tensor, dim: int, order: Tensor) -> Tensor:
    """A tensor whose first entries along a dimension are in another order."""
    return tensor.index_select(dim, torch.cat([order, torch.arange(len(order), tensor.shape[dim])]))


def with_stacks(traced: Traced, found: Sequence[Bundle], model: nn.Module) -> Traced:
    """The same graph, in which experts that are modules of their own are entries of stacks.

    Args:
        traced: a model, without stacks.
        found: the experts.
        model: the same, which computes where its graph holds for one choice of experts only.
    """
    stacks = {name: entries for one in found for name, entries in one.stacks.items()}
    plain, inputs = Plain(model), traced.inputs
    if stacks:
        traced = replace(traced, graph=_with_stacks(traced, stacks), state=dict(stacked(traced.state, stacks)))

    def run(state: Mapping[str, Tensor]) -> Tensor:
        return plain.kept(apart(state, stacks), inputs)

    return replace(traced, stacks=stacks, run=run)


def _with_stacks(traced: Traced, stacks: Stacks) -> fx.GraphModule:
    graph, own = traced.graph.graph, fx.Graph()
    names = (*stacked(traced.state, stacks), *traced.inputs)
    arguments = {name: own.placeholder(f"argument_{place}") for place, name in enumerate(names)}
    for stack, entries in stacks.items():
        for at, name in enumerate(entries):
            arguments[name] = own.call_function(torch.ops.aten.select.int, (arguments[stack], 0, at))
    before = iter((*traced.state, *traced.inputs))
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            copies[node] = arguments[next(before)]
        else:
            copies[node] = own.node_copy(node, copies.__getitem__)
    return fx.GraphModule(traced.graph, own)


def have_gains(traced: Traced, found: Sequence[Bundle]) -> bool:
    """Some expert that is a module of its own has a vector that it multiplies with, as a norm's gain.

    Args:
        traced: the model, without stacks.
        found: the experts.
    """
    nodes = dict(zip(traced.state, traced.graph.graph.nodes, strict=False))
    names = [entries[0] for one in found for entries in one.stacks.values()]
    users = (operation_of(user) for name in names if traced.state[name].ndim == 1 for user in nodes[name].users)
    return any(operation.startswith("mul") or "norm" in operation for operation in users)


def mark(reading: Reading, found: Sequence[Bundle]) -> None:
    """Let experts, of a model that was read with stacks, be one space each, along which no factor acts."""
    for one in found:
        sizes = (one.count,) if one.groups == 1 else (one.groups, one.count // one.groups)
        variables = [Variable(size) for size in sizes]
        reading.notes.rectified.update(variables)
        reading.notes.experts.update(variables)
        for name, dim in (*((stack, 0) for stack in one.stacks), *one.places):
            dims = reading.parameters[name]
            known = [stretch for other in dims for atom in atoms(other) for stretch in atom.exponent]
            before = dims[dim][0] if len(dims[dim]) == 1 else None
            new = 1 + max((count for _, _, count in known), default=-1)
            exponent = dict(before.exponent) if isinstance(before, Atom) else {(name, dim, new): 1}
            experts = tuple(Atom(variable, exponent) for variable in variables)
            left = size_of(dims[dim]) - one.count
            # A router may have rows for experts without parameters.
            others = (Atom(Variable(left, is_fixed=True), {(name, dim, new + 1): 1}),)
            dims[dim] = (Sum((experts, others)),) if left else experts
            for equations in (reading.strict, reading.relaxed):
                equations.append(exponent)
