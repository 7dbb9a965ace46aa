"""Choices that axes leave open, likeliest first, and the first of them that is exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import EXACT
from fusionlab.forward import input_embeddings
from fusionlab.growing.axes import STREAMS, Widening
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.epsilons import OtherEpsilon
from fusionlab.growing.factors import Choice, Stretch
from fusionlab.growing.refusals import inexact
from fusionlab.symmetry.change import relative_change
from fusionlab.symmetry.roles import Role

# An effect of another epsilon, relative to the largest logit, below which nothing is made longer: streams that are
# as long as before are nearer to the larger model's.
NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class Found:
    """Maps with which the grown model computes what the small one does.

    Attributes:
        widening: the maps.
        error: largest difference of the logits, relative to the largest.
        effect: that of the larger model's other epsilon, where nothing makes good for it.
    """

    widening: Widening
    error: float
    effect: float = 0.0


def exact_choice(
    embedding: Embedding,
    small: nn.Module,
    large: nn.Module,
    compute: Callable[[Widening], Tensor],
    reference: Tensor,
    other: OtherEpsilon | None = None,
) -> Found:
    """The first maps with which the grown model computes what the small one does, and the error.

    Args:
        embedding: the two models side by side.
        small: the small model; its numbers are not looked at.
        large: one of the larger architecture; neither are they.
        compute: gives the logits of the model that maps make, in float64.
        reference: what the small model computes.
        other: the larger model's epsilon of norms, where it has another one.

    Raises:
        InputError: none do, or a dimension cannot be grown.
    """
    widening, error = _first_exact(embedding, small, large, compute, reference if other is None else other.logits)
    effect = 0.0 if other is None else difference(other.logits, reference)
    if other is None or other.length is None or effect <= NEGLIGIBLE:
        return Found(widening, error, effect)
    for stretched in _stretched(embedding, widening.choice, other.length):
        found = difference(compute(stretched), reference)
        if found <= EXACT:
            return Found(stretched, found)
    return Found(widening, error, effect)


def _first_exact(
    embedding: Embedding, small: nn.Module, large: nn.Module, compute: Callable[[Widening], Tensor], reference: Tensor
) -> tuple[Widening, float]:
    least, tried = math.inf, Widening(embedding.small, embedding.large, Choice())
    for tried in _widenings(embedding, _token_factors(small, large)):
        error = difference(compute(tried), reference)
        if error <= EXACT:
            return tried, error
        least = min(least, error)
    raise InputError(inexact(small, large, embedding.placements, embedding.small, tried, least))


def _stretched(embedding: Embedding, choice: Choice, length: float) -> Iterator[Widening]:
    """Maps that make all that is written to streams longer, likeliest first.

    Args:
        embedding: the two models side by side.
        choice: what axes leave open otherwise.
        length: the factor.
    """
    for with_heads, with_norms in itertools.product((False, True), repeat=2):
        stretch = Stretch(length, with_norms, with_heads)
        widening = embedding.widening(replace(choice, last_norm=None, length=1.0, stretch=stretch))
        for changed in embedding.before_tied_tables(widening):
            yield replace(widening, choice=changed)


def difference(found: Tensor, reference: Tensor) -> float:
    """The largest difference of logits from others, relative to the largest of those; infinite where it is none."""
    if found.shape != reference.shape:
        return math.inf
    error = relative_change(found, reference)
    return math.inf if math.isnan(error) else error


def _widenings(embedding: Embedding, factors: Sequence[float]) -> Iterator[Widening]:
    """Maps, likeliest first; where axes leave nothing open there is one."""
    widening = embedding.widening(Choice())
    spaces = embedding.small.spaces
    grew = {spaces[name].role for name, (small, large) in widening.sizes.items() if small != large}
    choices = itertools.product(
        (True, False) if Role.QUERY_KEY in grew else (True,),
        factors if grew.intersection(STREAMS) else (1.0,),
        (False, True) if Role.LATENT in grew else (False,),
    )
    for scores, tokens, latent in choices:
        widening = embedding.widening(Choice(scores, tokens, latent))
        for choice in embedding.before_tied_tables(widening):
            yield replace(widening, choice=choice)


def _token_factors(small: nn.Module, large: nn.Module) -> tuple[float, ...]:
    """Factors that the token embeddings may need: models multiply them by the root of their width, or not."""
    tables = [input_embeddings(model) for model in (small, large)]
    if tables[0] is None or tables[1] is None:
        return (1.0,)
    inside = [_inner_factor(table) for table in tables if table is not None]
    if inside != [1.0, 1.0]:
        return (inside[0] / inside[1],)
    return 1.0, (tables[0].embedding_dim / tables[1].embedding_dim) ** 0.5


def _inner_factor(table: nn.Embedding) -> float:
    """The factor that a table multiplies its rows by when they are looked up."""
    rows = torch.ones((), dtype=torch.float64).expand(table.weight.shape)
    return float(functional_call(table, {"weight": rows}, (torch.zeros(1, dtype=torch.int64),)).flatten()[0])
