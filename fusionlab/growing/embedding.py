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
class Embedding:
    """A small model's parameters in a larger architecture.

    Attributes:
        small: the small model's blueprint, in the gauge of `state`.
        large: the larger model's, in the same gauge.
        state: the small model's parameters.
        fresh: those of a new model of the larger architecture, for norms and whatever is no parameter.
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
            InputError: parameters that one of the two models lacks, or a dimension that cannot be grown.
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

    def _mapped(self, name: str, target: str, tensor: Tensor, widening: Widening) -> Tensor:
        fresh = self.fresh[target]
        if not tensor.is_floating_point():
            return fresh
        gain = self._is_gain(target, fresh)
        fill = 1 - self._offset(target) if gain else 0.0
        out, primal = tensor.double(), target in self.written
        norm_biases = {norm.bias for norm in self.large.norms}
        new = []
        axes = zip(self.small.parameters[name], self.large.parameters[target], strict=True)
        for dim, (ours, theirs) in enumerate(axes):
            if gain and isinstance(ours, Fixed) and tensor.shape != fresh.shape:
                behind = Gather.padding(len(tensor), len(fresh))
                out = behind(out, dim, fill)
                new.append(behind.new)
                continue
            small, large = _sized(ours, tensor.shape[dim]), _sized(theirs, fresh.shape[dim])
            try:
                move = widening.of(small, large, primal, gain)
            except UnequalError as unequal:
                raise self.refuse(name, unequal.small, unequal.large) from unequal
            # What holds new experts down has an effect wherever one is picked, however seldom that is.
            new.append(torch.zeros_like(move.new) if self._routes(target) else move.new)
            share = widening.share_of_mean(small, large, target in norm_biases)
            if share is None:
                out = move(out, dim, NEVER if self._routes(target) else fill)
            else:
                mean = out.mean(dim, keepdim=True)
                out = move(out - mean, dim) + share * mean
        widening.new[target] = tuple(new)
        return out

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
        return name in scales or (tensor.ndim == 1 and name.endswith("weight"))

    def _offset(self, name: str) -> float:
        """The number that is added to a gain before it multiplies: a new norm multiplies by one."""
        listed = {norm.weight: norm.offset for norm in self.large.norms}
        if name in listed:
            return listed[name]
        return 1.0 if bool((self.fresh[name] == 0).all()) else 0.0

    def _routes(self, name: str) -> bool:
        """A parameter with one number for each expert, which is added to its logit."""
        axes = self.large.parameters[name]
        roles = {self.large.spaces[space].role for axis in axes for space in spaces_of(axis)}
        return len(axes) == 1 and roles == {Role.EXPERTS}


def _sized(axis: Axis, size: int) -> Axis:
    """The axis with its length, where nothing acts on it and any would do."""
    return replace(axis, size=size) if isinstance(axis, Fixed) else axis
