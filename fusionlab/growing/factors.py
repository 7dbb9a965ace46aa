"""Factors that axes do not tell, and what a parameter is to a stream."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """A factor of all that is written to streams, so that norms with another epsilon act as those before did.

    The mean square of a stream is its square times what it was, so that of the epsilon with it stays the same share.

    Attributes:
        length: the factor, the root of the epsilons' ratio.
        with_norms: what norms give is as many times as long too, and what reads it divides by it: where norms write to
            a stream. Else what they give stays as it was.
        with_heads: queries and keys are as many times as long, where norms of theirs make them what they were.
    """

    length: float = 1.0
    with_norms: bool = False
    with_heads: bool = False

    def of(self, dual: bool, of_norm: bool) -> float:
        """The factor of what runs along a stream.

        Args:
            dual: it reads from it.
            of_norm: it is a gain or a bias of a norm.
        """
        if dual:
            return 1 / self.length if self.with_norms else 1.0
        return self.length if self.with_norms or not of_norm else 1.0


@dataclass(frozen=True)
class Choice:
    """Factors that axes do not tell, since they stand in a model's code.

    Attributes:
        scores_by_root: scores are divided by the root of the head width, so that queries of a wider head grow by the
            root of the ratio.
        tokens: a factor of the token embeddings, where the model multiplies them by one that depends on its width.
        latent_is_normed: latent spaces go through a norm, as the stream does.
        last_norm: the gain of the norm that stands before a tied table and makes good for its longer rows, by its name
            in the larger model; None where there is none.
        length: what it is multiplied by, its bias too.
        stretch: of the stream, for another epsilon.
    """

    scores_by_root: bool = True
    tokens: float = 1.0
    latent_is_normed: bool = False
    last_norm: str | None = None
    length: float = 1.0
    stretch: Stretch = Stretch()


@dataclass(frozen=True)
class Use:
    """The relation of a parameter to the stream that it runs along.

    Attributes:
        primal: it is written to it, whatever its axis says: where signs and permutations act alone, primal and dual are
            one to a blueprint.
        gain: it multiplies what runs along it, so no factor of widths belongs to it.
        of_norm: it is a norm's gain or bias.
    """

    primal: bool = False
    gain: bool = False
    of_norm: bool = False


AS_IT_SAYS = Use()
