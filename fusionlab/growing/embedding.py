"""The parameters of a larger model that computes what a small one computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.growing.axes import STREAMS, UnequalError, Widening
from fusionlab.growing.factors import Choice, Use
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

    @cached_property
    def sources(self) -> dict[str, str]:
        """By name in the larger model, the parameter of the small one that becomes it."""
        return {renamed(name, self.placements): name for name in self.state}

    def widening(self, choice: Choice) -> Widening:
        """The maps between the axes of both models, with every size noted; no number of the small model is looked at.

        Raises:
            InputError: parameters that one of the two models lacks, or a dimension that cannot be grown, as heads in an
                order that is not followed.
        """
        widening = Widening(self.small, self.large, choice)
        for target, name in self.sources.items():
            if target not in self.fresh:
                raise InputError(
                    f"the larger model lacks the parameter {target!r}, for {name!r} of the small one; expected a "
                    f"config that differs in sizes only"
                )
            if self.state[name].is_floating_point():
                self._refuse_unequal(name, target, widening)
        stacks = [placement for placement in self.placements if placement.deepens]
        for name in (name for name in self.fresh if name not in self.sources):
            if not any(name.startswith(f"{stack.large}." if stack.large else "") for stack in stacks):
                raise InputError(
                    f"the larger model has the parameter {name!r}, which the small one lacks; expected a config that "
                    f"differs in sizes only"
                )
        return widening

    def made(self, widening: Widening) -> dict[str, Tensor]:
        """The larger model's parameters, in float64 where they are real."""
        sources = self.sources
        return {
            name: self.parameter(name, self.state[sources[name]] if name in sources else None, widening)
            for name in self.fresh
        }

    def parameter(self, target: str, tensor: Tensor | None, widening: Widening) -> Tensor:
        """One parameter of the larger model, in float64 where it is real.

        Args:
            target: its name there.
            tensor: what it is made of in the small model, as `state` has it; None for one of a layer that is new, which
                writes nothing.
            widening: of `widening`.
        """
        fresh = self.fresh[target]
        if not fresh.is_floating_point() or (tensor is not None and not tensor.is_floating_point()):
            return fresh
        fill = 1 - self._offset(target) if self._is_gain(target, fresh) else 0.0
        if tensor is None:
            return torch.full(fresh.shape, fill, dtype=torch.float64)
        out = tensor.double()
        for move in self._moves(self.sources[target], target, widening):
            if move.share is None:
                out = move.gather(out, move.dim, NEVER if move.routes else fill)
            else:
                mean = out.mean(move.dim, keepdim=True)
                out = move.gather(out - mean, move.dim) + move.share * mean
        factor = self._factor(target, widening.choice)
        offset = self._offset(target) if factor != 1 and self._is_gain(target, fresh) else 0.0
        return out if factor == 1 else (out + offset) * factor - offset

    def new(self, target: str, widening: Widening) -> tuple[Tensor, ...]:
        """For each dimension of a parameter of the larger model the part of what is new that every entry belongs to.

        See `Gather.new`; nothing of a parameter that the small model's is taken for as it is.
        """
        if target not in self.sources:
            return tuple(torch.ones(length, dtype=torch.int64) for length in self.fresh[target].shape)
        name = self.sources[target]
        if not self.state[name].is_floating_point():
            return ()
        # What holds new experts down has an effect wherever one is picked, however seldom that is.
        moves = self._moves(name, target, widening)
        return tuple(torch.zeros_like(move.gather.new) if move.routes else move.gather.new for move in moves)

    def before_tied_tables(self, widening: Widening) -> Iterator[Choice]:
        """Choices in which a last norm makes good for the longer rows of a tied table that reads it."""
        choice = widening.choice
        grew = [widening.sizes[space] for space in self._streams() if space in widening.sizes]
        stretch = choice.stretch
        # A stretched table is read as long as it is written, by a norm that is stretched itself or not.
        longer = stretch.length * (stretch.length if stretch.with_norms else 1.0)
        if not self.tied or (all(small == large for small, large in grew) and longer == 1):
            yield choice
            return
        placed = self.sources
        gains = [name for name in self.fresh if name in placed and self._is_gain(name, self.fresh[name])]
        small, large = grew[0]
        for gain in gains[::-1][:_LAST_NORMS]:
            # The table is as many times as long as the stream, and T5 divides by the root of its width besides.
            for scale in dict.fromkeys((small / large, (small / large) ** 0.5)):
                yield replace(choice, last_norm=gain, length=scale / choice.tokens / longer)

    @cached_property
    def targets(self) -> dict[str, str]:
        """By name in the small model, the parameter of the larger one that is made of it."""
        return {name: target for target, name in self.sources.items()}

    def cut(self, name: str, tensor: Tensor, widening: Widening) -> Tensor:
        """One parameter of the small model that a larger model's holds; of what `parameter` makes, what it was made of.

        What lies in new entries is left out.

        Args:
            name: in the small model.
            tensor: of the larger model, in the gauge of `large`.
            widening: what made an exact embedding.
        """
        if not self.state[name].is_floating_point():
            return self.state[name]
        target = self.targets[name]
        factor = self._factor(target, widening.choice)
        offset = self._offset(target) if factor != 1 and self._is_gain(target, self.fresh[target]) else 0.0
        return self._cut(
            name, target, tensor if factor == 1 else (tensor.double() + offset) / factor - offset, widening
        )

    def _factor(self, target: str, choice: Choice) -> float:
        """The factor of a parameter of the larger model as a whole, of a gain that of what it multiplies by."""
        factor = choice.tokens if target in self.tables else 1.0
        if choice.last_norm is not None and target in (choice.last_norm, _bias_of(choice.last_norm)):
            factor *= choice.length
        if choice.stretch.with_norms and self._is_gain_of_norm(target) and self._is_of_stream(target):
            factor *= choice.stretch.length
        return factor

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

    def _refuse_unequal(self, name: str, target: str, widening: Widening) -> None:
        """Refuse a parameter whose maps do not lead to the larger model's shape."""
        shape, fresh = tuple(self.state[name].shape), tuple(self.fresh[target].shape)
        if tuple(len(move.gather.source) for move in self._moves(name, target, widening)) != fresh:
            if shape == fresh:
                raise InputError(
                    f"{name!r} lies in groups of channels, of which no map into the larger model is known; expected a "
                    f"model without"
                )
            raise InputError(
                f"{name!r} has the shape {shape} and would have {fresh}, and no map between the heads of both is "
                f"known; expected a larger model with the same number of heads"
            )

    def _moves(self, name: str, target: str, widening: Widening) -> Iterator[Move]:
        """The map of each dimension of a parameter into the larger model."""
        shape, fresh = self.state[name].shape, self.fresh[target]
        gain, bias = self._is_gain(target, fresh), target.endswith(".bias")
        of_norm = self._is_gain_of_norm(f"{target.removesuffix('bias')}weight" if bias else target)
        use = Use(target in self.written, gain, of_norm)
        norm_biases = {norm.bias for norm in self.large.norms}
        axes = zip(self.small.parameters[name], self.large.parameters[target], strict=True)
        # A table that no space runs along, as one of untied Switch Transformers, is not read; else nothing is exact.
        is_unread = use.primal and all(isinstance(axis, Fixed) for axis in self.small.parameters[name])
        for dim, (ours, theirs) in enumerate(axes):
            if isinstance(ours, Fixed) and (gain or (is_unread and dim)) and shape[dim] < fresh.shape[dim]:
                yield Move(dim, Gather.padding(shape[dim], fresh.shape[dim]))
                continue
            small, large = _sized(ours, shape[dim]), _sized(theirs, fresh.shape[dim])
            try:
                gather = widening.of(small, large, use)
            except UnequalError as unequal:
                raise self.refuse(name, unequal.small, unequal.large) from unequal
            share = widening.share_of_mean(small, large, self._first(target) in norm_biases)
            routes, centred = self._routes(target) and not gain, widening.is_centred(small) and gather.changes
            yield Move(dim, gather, share, routes, centred)

    def _streams(self) -> tuple[str, ...]:
        """The streams that something is written to, in order."""
        spaces = (space for axes in self.small.parameters.values() for axis in axes for space in spaces_of(axis))
        wide = (s for s in spaces if self.small.spaces[s].role in STREAMS and not self.small.spaces[s].index)
        return tuple(dict.fromkeys(wide))

    def _is_gain(self, name: str, tensor: Tensor) -> bool:
        scales = {scale.scale for scale in self.large.layer_scales}
        dims = tensor.ndim - (name in self.large.stacks)
        return self._first(name) in scales or (dims == 1 and name.endswith("weight"))

    def _is_gain_of_norm(self, name: str) -> bool:
        scales = {scale.scale for scale in self.large.layer_scales}
        return name in self.fresh and self._first(name) not in scales and self._is_gain(name, self.fresh[name])

    def _is_of_stream(self, name: str) -> bool:
        axes = self.large.parameters[name]
        return any(self.large.spaces[space].role in STREAMS for axis in axes for space in spaces_of(axis))

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


def _bias_of(gain: str) -> str:
    """The name of the bias beside a norm's gain."""
    return f"{gain.removesuffix('weight')}bias"


def _sized(axis: Axis, size: int) -> Axis:
    """The axis with its length, where nothing acts on it and any would do."""
    return replace(axis, size=size) if isinstance(axis, Fixed) else axis
