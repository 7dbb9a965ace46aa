"""The blueprint of a model that nobody described: traced, read, searched, assembled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

import fusionlab.symmetry.infer.rules  # noqa: F401 (registers the rules)
from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.infer.assembly import Assembly
from fusionlab.symmetry.infer.attempts import Attempts
from fusionlab.symmetry.infer.entries import Bundle
from fusionlab.symmetry.infer.exchange import exchangeable, have_gains, mark, with_stacks
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.search import Search
from fusionlab.symmetry.infer.slopes import Slopes
from fusionlab.symmetry.infer.trace import Traced, TraceError, trace
from fusionlab.symmetry.infer.unread import like_what_is_read
from fusionlab.symmetry.inputs import Input

# Of random parameters, at most so many.
DRAWS = 4


class UnreadError(SymmetryError):
    """Inputs that lead to too few of a model's parameters.

    Attributes:
        is_of_experts: some other entry of the same list of modules was read.
    """

    def __init__(self, message: str, is_of_experts: bool) -> None:
        super().__init__(message)
        self.is_of_experts = is_of_experts


def infer(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    architecture: str,
    seed: int = 0,
    may_be_unread: Callable[[Traced], bool] = lambda traced: True,
    drawn: Mapping[str, Input] | None = None,
) -> Blueprint:
    """The blueprint of a model, inferred from its traced graph and shown on random parameters in float64.

    Args:
        model: any module on the CPU; its weights are not looked at, and it is not modified.
        inputs: a batch by the names of the forward's arguments, of at least two examples.
        architecture: what to call it.
        seed: of random parameters and elements.
        may_be_unread: whether parameters of the trace that enter no output may do so. Of what they read or write
            nothing is known, so that they stay as they are.
        drawn: what was drawn in place of inputs that were the same for all.

    Raises:
        UnreadError: the inputs leave too much of the model unread.
        SymmetryError: it cannot be traced.
    """
    try:
        traced = _traced(model, inputs, seed)
    except TraceError as error:
        raise SymmetryError(f"{architecture}: {error}") from error
    if traced.unread and not may_be_unread(traced):
        raise UnreadError(
            f"{architecture}: {', '.join(inputs)} alone leave {traced.unread[0]!r} and other parameters unread; "
            f"expected fusionlab.blueprint(model, example_inputs) with all that the model takes",
            is_of_experts=bool(like_what_is_read(traced.unread, traced)),
        )
    experts = exchangeable(traced, model)
    found = _read(traced, experts, model, architecture, seed, drawn or {})
    if have_gains(traced, experts):
        # Nobody folds gains that are entries of stacks: a stream may only be rotated without those.
        alone = _read(traced, (), model, architecture, seed, drawn or {})
        found = max(found, alone, key=_free)
    return found


def _traced(model: nn.Module, inputs: Mapping[str, Tensor], seed: int) -> Traced:
    """The graph, with random parameters of which as few as may be enter no output.

    A few units of ReLU are all dead by chance, and what reads or writes them shows nothing until others are drawn.

    Args:
        model, inputs, seed: see `infer`.

    Raises:
        TraceError: see `trace`.
    """
    best = trace(model, inputs, seed)
    flat = Slopes(best, best.state).flat()
    for draw in range(1, DRAWS):
        if not flat:
            break
        try:
            other = trace(model, inputs, seed + draw)
        except TraceError:  # a forward that follows values fails for some
            continue
        left = Slopes(other, other.state).flat()
        if left == flat:
            break  # by nature
        if len(left) < len(flat):
            best, flat = other, left
    return best


def _free(found: Blueprint) -> int:
    """The continuous degrees of freedom of bases, once folded; those of single coordinates do not count."""
    spaces = (found.after_folding or found).spaces.values()
    return sum(space.dimension for space in spaces if not space.group.is_factor)


def _read(
    traced: Traced,
    experts: Sequence[Bundle],
    model: nn.Module,
    architecture: str,
    seed: int,
    drawn: Mapping[str, Input],
) -> Blueprint:
    """The blueprint of a traced model whose experts are entries of stacks."""
    if experts:
        traced = with_stacks(traced, experts, model)
    reading = Reading(traced).read()
    mark(reading, experts)
    attempts = Attempts(reading, seed)
    if not attempts.expected.isfinite().all():
        raise SymmetryError(
            f"{architecture}: the outputs for the inputs {', '.join(traced.inputs)} are not finite with random "
            f"parameters; expected an example for which they are"
        )
    return Assembly(reading, attempts, Search(attempts).run(), architecture, drawn).build(model)
