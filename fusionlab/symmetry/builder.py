"""The builder that an architecture file writes its blueprint down with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, LayerScale, Norm, Reader, Space, SymmetryError
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
    Signs,
)
from fusionlab.symmetry.inputs import Input
from fusionlab.symmetry.roles import Role

POSITIVELY_HOMOGENEOUS = ("relu", "leaky_relu")
# Why a stream that is only read through norms may not be rotated.
TIED = "the output embedding is the input embedding; untie them to rotate"


@dataclass(frozen=True)
class Normed:
    """The output of a norm, as `BlueprintBuilder.norm` returns it: what reads it is folded with it."""

    axis: Axis | None
    norm: str


@dataclass
class BlueprintBuilder:
    """Writes a blueprint down line by line; what an architecture file calls.

    Args of every method: ``name`` is the parameter's (or module's) name with its prefix; ``reads`` and ``writes``
    are axes, None for one that no space touches; ``reads`` may be what `norm` returned.
    """

    architecture: str
    folded: bool = False
    spaces: dict[str, Space] = field(default_factory=dict)
    parameters: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    outputs: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    biases: dict[str, str] = field(default_factory=dict)
    norms: dict[str, Norm] = field(default_factory=dict)
    layer_scales: list[LayerScale] = field(default_factory=list)
    centred: list[str] = field(default_factory=list)
    seen_key_biases: list[str] = field(default_factory=list)
    _rotating: set[str] = field(default_factory=set)

    def space(
        self,
        name: str,
        group: Group,
        role: str,
        layer: int | None = None,
        index: tuple[str, ...] = (),
    ) -> Along:
        """Declare a space and return the axis that runs along it.

        Args:
            role: a value of `Role`, such as ``attention.qk``.
            layer: the transformer layer it belongs to, or None.
            index: the permutation spaces that index its copies, outermost first.

        Raises:
            SymmetryError: it has no coordinates, or fewer than none, as an odd config can make it.
            TypeError: a space that indexes others is none of permutations.
            ValueError: a role that does not exist.
        """
        if group.size < 1:
            raise SymmetryError(f"{name} would have {group.size} coordinates; expected a model with at least 1")
        for outer in index:
            if not isinstance(self.spaces[outer].group, Permutation):
                raise TypeError(f"{outer} indexes {name} but is not a space of permutations")
        copies = tuple(self.spaces[outer].group.size for outer in index)
        self.spaces[name] = Space(name, group, Role(role), layer, index, copies)
        return Along(name, group.size)

    def stream(
        self, name: str, size: int, norm: Literal["layer", "rms"], centred: bool = True, tied: bool = False
    ) -> Along:
        """A residual stream that is only read through norms: permutations as it stands, rotations once folded.

        Args:
            norm: ``layer`` for LayerNorm, whose mean subtraction leaves rotations that keep the all-ones vector;
                ``rms`` for RMSNorm, which leaves all.
            centred: for LayerNorm, whether every reader sees the stream's own mean subtracted (not that of several
                tokens together), so that writers may be centred.
            tied: whether an output embedding that reads the last norm is the input embedding too; then that norm's
                gain has no place to be folded into, and permutations are all there is. For RMSNorm see `signed`.
        """
        if tied:
            self.leaves_out(f"rotations of {name}: {TIED}")
            return self.space(name, Permutation(size), role="residual")
        self._rotating.add(name)
        if norm == "layer" and centred:
            self.centred.append(name)
        rotations = OrthogonalFixingOnes(size) if norm == "layer" else Orthogonal(size)
        return self.space(name, rotations if self.folded else Permutation(size), role="residual")

    def signed(self, name: str, size: int, because: str) -> Axis:
        """A residual stream of permutations with a sign for each coordinate: some RMSNorm's gain cannot be folded.

        No norm without a mean sees signs, and they move no gain.

        Args:
            because: why there are no rotations, such as `TIED`.
        """
        self.leaves_out(f"rotations of {name}: {because}")
        order = self.space(name, Permutation(size), role="residual")
        return self.per(order, self.space(f"{name}.signs", Signs(1), role="residual", index=(order.space,)))

    def per(self, outer: Along, inner: Axis) -> Per:
        """Blocks permuted by `outer`, each laid out as `inner`."""
        return Per(outer.space, outer.size, inner)

    def hidden_units(self, name: str, size: int, layer: int | None, activation: str) -> Axis:
        """Declare the units of a feed-forward layer with an element-wise activation, and return their axis.

        Units are permuted; where the activation commutes with positive factors (ReLU) each unit has one of its own.

        Args:
            activation: its name in transformers, such as ``gelu``.
        """
        units = self.space(name, Permutation(size), role="ffn", layer=layer)
        if activation not in POSITIVELY_HOMOGENEOUS:
            return units
        factor = self.space(f"{name}.scale", Scale(1), role="ffn.scale", layer=layer, index=(units.space,))
        return self.per(units, factor)

    def rotary_query(
        self, name: str, width: int, rotary: int, layer: int, index: tuple[str, ...], interleaved: bool = False
    ) -> Axis:
        """Declare what is free in a head's query and, dually, its key, where positions turn coordinates in pairs.

        The coordinates that are turned come first; the others are free.

        Args:
            name: of the space, or of both where some coordinates are free.
            width: coordinates of a head.
            rotary: how many of them are turned.
            layer: of the heads.
            index: spaces that the heads are indexed by.
            interleaved: whether neighbours make a pair, instead of coordinates half of `rotary` apart.

        Raises:
            SymmetryError: an odd number is turned.
        """
        if rotary % 2:
            raise SymmetryError(f"rotary positions on {rotary} coordinates of a head are not described; expected pairs")
        where: Any = {"role": "attention.qk", "layer": layer, "index": index}
        if rotary == width:
            return self.space(name, Rotary(width, interleaved=interleaved), **where)
        rest = Invertible(width - rotary)
        if not rotary:
            return self.space(f"{name}.rest", rest, **where)
        turned = self.space(f"{name}.rotary", Rotary(rotary, interleaved=interleaved), **where)
        return Concat(turned, self.space(f"{name}.rest", rest, **where))

    def gated_units(self, name: str, size: int, layer: int | None, activation: str) -> tuple[Axis, Axis]:
        """Declare the units of a gated feed-forward layer, ``down(activation(gate(x)) * up(x))`` (Shazeer, 2020).

        Units are permuted, and each has a factor of any sign that ``up`` and ``down`` cancel.

        Args:
            activation: its name in transformers, such as ``silu``.

        Returns:
            The axis that the gate writes, and the axis that ``up`` writes and ``down`` reads.
        """
        units = self.space(name, Permutation(size), role="ffn", layer=layer)
        factor = self.space(f"{name}.scale", Scale(1, signed=True), role="ffn.scale", layer=layer, index=(units.space,))
        if activation in POSITIVELY_HOMOGENEOUS:
            self.leaves_out(f"factors between gate and down in {name}: {activation} admits them, they are not matched")
        return units, self.per(units, factor)

    def parameter(self, name: str, *axes: Axis | None) -> None:
        """One parameter, one axis for each dimension."""
        self.parameters[name] = tuple(Fixed() if axis is None else axis for axis in axes)

    def linear(
        self, name: str, reads: Axis | Normed | None, writes: Axis | None, bias: bool = True, transposed: bool = False
    ) -> None:
        """A torch.nn.Linear: weight ``(out, in)`` and bias ``(out,)``; `transposed` for Conv1D, ``(in, out)``."""
        self.reads(f"{name}.weight", 0 if transposed else 1, f"{name}.bias" if bias else None, reads)
        axis = reads.axis if isinstance(reads, Normed) else reads
        incoming = axis and axis.dual()
        self.parameter(f"{name}.weight", *((incoming, writes) if transposed else (writes, incoming)))
        if bias:
            self.parameter(f"{name}.bias", writes)

    def reads(
        self,
        weight: str,
        dim: int,
        bias: str | None,
        source: Axis | Normed | None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        """Note the bias of a weight, and that its dimension `dim` reads `source`, if that is a norm.

        `linear` does it by itself.

        Args:
            bias: name of the bias that is added to what `weight` makes of it, or None.
            rows: of a fused projection, the first and the end of the stretch of outputs that reads it; all if None.
        """
        if bias is not None:
            self.biases[weight] = bias
        if isinstance(source, Normed) and source.norm in self.norms:
            norm = self.norms[source.norm]
            self.norms[source.norm] = replace(norm, readers=(*norm.readers, Reader(weight, dim, rows)))

    def norm(self, name: str, axis: Axis | None, bias: bool = True, padded: bool = False) -> Normed:
        """An element-wise affine norm along `axis`: gain, and bias if it has one.

        Args:
            padded: whether the model puts zeros beside its output before it is read.

        Returns:
            Its output, to be handed to what reads it.
        """
        foldable = axis is not None and any(space in self._rotating for space in spaces_of(axis))
        if foldable:
            self.norms[name] = Norm(f"{name}.weight", f"{name}.bias" if bias else None, padded=padded)
        self.parameter(f"{name}.weight", None if foldable and self.folded else self._unsigned(axis))
        if bias:
            self.parameter(f"{name}.bias", axis)
        return Normed(axis, name)

    def _unsigned(self, axis: Axis | None) -> Axis | None:
        """The axis of gains along one of what they multiply."""
        signed = isinstance(axis, Per) and any(isinstance(self.spaces[s].group, Signs) for s in spaces_of(axis.inner))
        return Along(axis.space, axis.count) if isinstance(axis, Per) and signed else axis

    def copies(self, source: Normed, count: int) -> Normed:
        """Several vectors of a norm's output laid one after the other, two tokens' for instance."""
        return Normed(None if source.axis is None else Concat(*[source.axis] * count), source.norm)

    def layer_scale(self, name: str, axis: Axis | None, writer: str) -> None:
        """A learned factor for each feature of what the linear map `writer` adds to the stream."""
        foldable = axis is not None and any(space in self._rotating for space in spaces_of(axis))
        if foldable:
            self.layer_scales.append(LayerScale(name, f"{writer}.weight"))
        self.parameter(name, None if foldable and self.folded else axis)

    def embedding(self, name: str, writes: Axis | None) -> None:
        """A torch.nn.Embedding: weight ``(rows, features)``."""
        self.parameter(f"{name}.weight", None, writes)

    def takes(self, name: str, shape: tuple[int, ...], vocabulary: int | None = None, last: int | None = None) -> None:
        """An input of the model; see `Input`."""
        self.inputs.append(Input(name, shape, vocabulary, last))

    def gives(self, name: str, *axes: Axis | None) -> None:
        """An output of the model whose basis alignments change, one axis for each dimension."""
        self.outputs[name] = tuple(Fixed() if axis is None else axis for axis in axes)

    def attention_maps(self, name: str, heads: Axis) -> None:
        """Attention maps ``(batch, heads, queries, keys)`` among the outputs; `heads` has one entry a head."""
        self.gives(name, None, heads, None, None)

    def sees_key_bias(self, space: Along) -> None:
        """Note that the scores of one space of queries and keys do not ignore a constant added to all keys."""
        self.seen_key_biases.append(space.space)

    def leaves_out(self, reason: str) -> None:
        """Note a symmetry that this architecture does not have, and why."""
        self.notes.append(reason)

    def build(self) -> Blueprint:
        """The finished blueprint."""
        return Blueprint(
            self.architecture,
            dict(self.spaces),
            dict(self.parameters),
            tuple(self.inputs),
            tuple(self.notes),
            dict(self.outputs),
            dict(self.biases),
            tuple(self.norms.values()),
            tuple(self.layer_scales),
            tuple(self.centred),
            tuple(self.seen_key_biases),
            folded=self.folded,
        )
