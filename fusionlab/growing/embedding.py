"""The parameters of a larger model that computes what a small one computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.growing.axes import STREAMS, Choice, UnequalError, Widening
from fusionlab.growing.gather import Gather
from fusionlab.growing.layers import Placement, renamed
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import Axis, Fixed, spaces_of
from fusionlab.symmetry.roles import Role

# A router's logit for an expert that it never picks: exp(-10,000) is zero in every dtype.
NEVER = -1e4
# Norms that may stand before a tied table: the last ones of a model.
_LAST_NORMS = 4


@dataclass(frozen=True)
class Move:
    """The map of one dimension of a parameter into the larger model.

    Attributes:
        dim: which dimension.
        gather: the map of what is left when the mean is taken away, or of everything where no share is set.
        share: the share of the mean that every entry of the larger dimension gets; None for a mean like the rest.
        routes: new entries hold experts down.
        is_centred: what lies along it has mean zero.
    """

    dim: int
    gather: Gather
    share: float | None = None
    routes: bool = False
    is_centred: bool = False


@dataclass(frozen=True)
class Embedding:
    """A small model's parameters in a larger architecture.

    Attributes:
        small: the small model's blueprint, in the gauge of `state`.
        large: the larger model's, in the same gauge.
        state: the small model's parameters.
        fresh: those of a new model of the larger architecture, for norms and whatever is no parameter; both hold
            stacks of the experts that models have in lists.
        placements: where layers go.
        written: names in the larger model of all tables that embeddings are looked up in, which write to a stream.
        tables: those of the tokens among them.
        tied: whether those are the output embeddings too.
        refuse: tells of a parameter's two sizes that do not fit.
    """

    small: Blueprint
    large: Blueprint
    state: Mapping[str, Tensor]
    fresh: Mapping[str, Tensor]
    placements: Sequence[Placement]
    written: frozenset[str]
    tables: frozenset[str]
    tied: bool
    refuse: Callable[[str, int | None, int | None], InputError]

    def with_choice(self, choice: Choice) -> tuple[dict[str, Tensor], Widening]:
        """The larger model's parameters, in float64 where they are real, and the maps that made them.

        Raises:
            InputError: parameters that one of the two models lacks, or a dimension that cannot be grown, as heads in an
                order that is not followed.
        """
        widening, out = Widening(self.small, self.large, choice), dict[str, Tensor]()
        for name, tensor in self.state.items():
            target = renamed(name, self.placements)
            if target not in self.fresh:
                raise InputError(
                    f"the larger model lacks the parameter {target!r}, for {name!r} of the small one; expected a "
                    f"config that differs in sizes only"
                )
            out[target] = self._mapped(name, target, tensor, widening)
        for name, fresh in self.fresh.items():
            if name not in out:
                out[name] = self._silent(name)
                widening.new[name] = tuple(torch.ones(length, dtype=torch.int64) for length in fresh.shape)
        for name in self.tables:
            out[name] = out[name] * choice.tokens
        return {name: out[name] for name in self.fresh}, widening

    def before_tied_tables(self, state: Mapping[str, Tensor], widening: Widening) -> Iterator[dict[str, Tensor]]:
        """States in which a last norm makes good for the longer rows of a tied table that reads it.

        Args:
            state: of the larger model, as `with_choice` makes it.
            widening: what made it.
        """
        grew = [widening.sizes[space] for space in self._streams() if space in widening.sizes]
        if not self.tied or all(small == large for small, large in grew):
            yield dict(state)
            return
        placed = {renamed(name, self.placements) for name in self.state}
        gains = [name for name in self.fresh if self._is_gain(name, state[name]) and name in placed]
        small, large = grew[0]
        for gain in gains[::-1][:_LAST_NORMS]:
            # The table is as many times as long as the stream, and T5 divides by the root of its width besides.
            for scale in (small / large, (small / large) ** 0.5):
                factor = scale / widening.choice.tokens
                changed, offset = dict(state), self._offset(gain)
                changed[gain] = (state[gain] + offset) * factor - offset
                bias = f"{gain.removesuffix('weight')}bias"
                if bias in state:
                    changed[bias] = state[bias] * factor
                yield changed

    def cut(self, state: Mapping[str, Tensor], widening: Widening) -> dict[str, Tensor]:
        """The small model's parameters that a larger model's hold; of what `with_choice` makes, those it was made from.

        What lies in new entries is left out.

        Args:
            state: of the larger model, in the gauge of `large`.
            widening: what made an exact embedding.
        """
        out = {}
        for name, tensor in self.state.items():
            target = renamed(name, self.placements)
            out[name] = self._cut(name, target, state[target], widening) if tensor.is_floating_point() else tensor
        for name in (name for name in out if renamed(name, self.placements) in self.tables):
            out[name] = out[name] / widening.choice.tokens
        return out

    def _cut(self, name: str, target: str, tensor: Tensor, widening: Widening) -> Tensor:
        out = tensor.double()
        for move in self._moves(name, target, widening):
            if move.share is not None:
                mean = out.mean(move.dim, keepdim=True) / move.share
                out = move.gather.back(out - out.mean(move.dim, keepdim=True), move.dim)
                out = out - out.mean(move.dim, keepdim=True) + mean
                continue
            out = move.gather.back(out, move.dim)
            if move.is_centred:
                out = out - out.mean(move.dim, keepdim=True)
        return out

    def _mapped(self, name: str, target: str, tensor: Tensor, widening: Widening) -> Tensor:
        fresh = self.fresh[target]
        if not tensor.is_floating_point():
            return fresh
        fill = 1 - self._offset(target) if self._is_gain(target, fresh) else 0.0
        out, new = tensor.double(), []
        for move in self._moves(name, target, widening):
            # What holds new experts down has an effect wherever one is picked, however seldom that is.
            new.append(torch.zeros_like(move.gather.new) if move.routes else move.gather.new)
            if move.share is None:
                out = move.gather(out, move.dim, NEVER if move.routes else fill)
            else:
                mean = out.mean(move.dim, keepdim=True)
                out = move.gather(out - mean, move.dim) + move.share * mean
        if out.shape != fresh.shape:
            raise InputError(
                f"{name!r} has the shape {tuple(tensor.shape)} and would have {tuple(fresh.shape)}, and no map between "
                f"the heads of both is known; expected a larger model with the same number of heads"
            )
        widening.new[target] = tuple(new)
        return out

    def _moves(self, name: str, target: str, widening: Widening) -> Iterator[Move]:
        """The map of each dimension of a parameter into the larger model."""
        shape, fresh = self.state[name].shape, self.fresh[target]
        gain, primal = self._is_gain(target, fresh), target in self.written
        norm_biases = {norm.bias for norm in self.large.norms}
        axes = zip(self.small.parameters[name], self.large.parameters[target], strict=True)
        for dim, (ours, theirs) in enumerate(axes):
            if gain and isinstance(ours, Fixed) and shape != fresh.shape:
                yield Move(dim, Gather.padding(shape[dim], fresh.shape[dim]))
                continue
            small, large = _sized(ours, shape[dim]), _sized(theirs, fresh.shape[dim])
            try:
                gather = widening.of(small, large, primal, gain)
            except UnequalError as unequal:
                raise self.refuse(name, unequal.small, unequal.large) from unequal
            share = widening.share_of_mean(small, large, self._first(target) in norm_biases)
            routes, centred = self._routes(target) and not gain, widening.is_centred(small) and gather.changes
            yield Move(dim, gather, share, routes, centred)

    def _silent(self, name: str) -> Tensor:
        """The value of a parameter of a layer that writes nothing."""
        stacks = [placement for placement in self.placements if placement.deepens]
        if not any(name.startswith(f"{stack.large}." if stack.large else "") for stack in stacks):
            raise InputError(
                f"the larger model has the parameter {name!r}, which the small one lacks; expected a config that "
                f"differs in sizes only"
            )
        fresh = self.fresh[name]
        if not fresh.is_floating_point():
            return fresh
        return torch.full_like(fresh, 1 - self._offset(name) if self._is_gain(name, fresh) else 0.0).double()

    def _streams(self) -> tuple[str, ...]:
        """The streams that something is written to, in order."""
        spaces = (space for axes in self.small.parameters.values() for axis in axes for space in spaces_of(axis))
        wide = (s for s in spaces if self.small.spaces[s].role in STREAMS and not self.small.spaces[s].index)
        return tuple(dict.fromkeys(wide))

    def _is_gain(self, name: str, tensor: Tensor) -> bool:
        scales = {scale.scale for scale in self.large.layer_scales}
        dims = tensor.ndim - (name in self.large.stacks)
        return self._first(name) in scales or (dims == 1 and name.endswith("weight"))

    def _offset(self, name: str) -> float:
        """The number that is added to a gain before it multiplies: a new norm multiplies by one."""
        listed = {norm.weight: norm.offset for norm in self.large.norms}
        if self._first(name) in listed:
            return listed[self._first(name)]
        return 1.0 if bool((self.fresh[name] == 0).all()) else 0.0

    def _first(self, name: str) -> str:
        """The name by which the larger model's blueprint tells of a tensor."""
        return self.large.same.get(name, name)

    def _routes(self, name: str) -> bool:
        """A parameter with one number for each expert, which is added to its logit."""
        axes = self.large.parameters[name]
        roles = {self.large.spaces[space].role for axis in axes for space in spaces_of(axis)}
        return len(axes) == 1 and roles == {Role.EXPERTS}


def _sized(axis: Axis, size: int) -> Axis:
    """The axis with its length, where nothing acts on it and any would do."""
    return replace(axis, size=size) if isinstance(axis, Fixed) else axis
