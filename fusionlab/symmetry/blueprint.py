"""Blueprints: for one architecture, every parameter's axes. Pure description, no arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per, spaces_of
from fusionlab.symmetry.groups import Copies, Group, Orthogonal, OrthogonalFixingOnes, Permutation, Scale

POSITIVELY_HOMOGENEOUS = ("relu", "leaky_relu")


class SymmetryError(ValueError):
    """A model and a blueprint, or a blueprint and an alignment, do not fit; one sentence says where."""


@dataclass(frozen=True)
class Space:
    """A hidden vector space whose basis is arbitrary.

    Attributes:
        name: unique inside a blueprint, such as ``layers.3.qk``.
        group: what may act on one copy of it.
        role: what kind of space it is, dotted from coarse to fine, such as ``attention.qk``; options select by it.
        layer: the transformer layer it belongs to, or None.
        index: the permutation spaces that index its copies, outermost first; their permutations move the copies.
        copies: how many copies each of those gives.
    """

    name: str
    group: Group
    role: str
    layer: int | None = None
    index: tuple[str, ...] = ()
    copies: Copies = ()

    @property
    def dimension(self) -> int:
        """Continuous degrees of freedom over all copies."""
        return self.group.dimension * torch.Size(self.copies).numel()


@dataclass(frozen=True)
class Input:
    """One input of a model.

    Attributes:
        name: the forward's keyword.
        shape: without the batch.
        vocabulary: for token ids, how many there are.
        last: for token ids, the one that every row ends with and that is nowhere else, or None.
    """

    name: str
    shape: tuple[int, ...]
    vocabulary: int | None = None
    last: int | None = None

    def random(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
        """A random batch: normal numbers, or token ids."""
        if self.vocabulary is None:
            return torch.randn(batch, *self.shape, generator=generator, dtype=torch.float64).to(dtype)
        ids = torch.randint(self.vocabulary, (batch, *self.shape), generator=generator)
        if self.last is not None:
            ids[ids == self.last] = (self.last + 1) % self.vocabulary
            ids[..., -1] = self.last
        return ids


@dataclass(frozen=True)
class Reader:
    """A linear map behind a norm.

    Attributes:
        weight: its weight's name.
        dim: the weight's dimension that reads.
        bias: its bias's name, or None.
        rows: of what it writes, the first and the end of the stretch that reads the norm; None where all does.
    """

    weight: str
    dim: int
    bias: str | None
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Norm:
    """An affine norm whose gain can be folded into what reads it.

    Attributes:
        weight: the gain's name.
        bias: the bias's name, or None.
        offset: what is added to the stored gain (1 where it is stored as ``1 + w``).
        readers: all that reads it.
        padded: whether zeros are put beside its output before it is read, so that its bias cannot move on.
    """

    weight: str
    bias: str | None
    offset: float
    readers: tuple[Reader, ...] = ()
    padded: bool = False


@dataclass(frozen=True)
class LayerScale:
    """A learned factor for each feature of a branch's output, which its last linear map can absorb."""

    scale: str
    weight: str
    bias: str | None


@dataclass(frozen=True)
class Normed:
    """The output of a norm, as `BlueprintBuilder.norm` returns it: what reads it is folded with it."""

    axis: Axis | None
    norm: str


@dataclass(frozen=True)
class Blueprint:
    """The symmetry of one architecture: its spaces, and for every parameter the axes they act on.

    Attributes:
        architecture: the name it is registered under.
        spaces: by name, a space that indexes others before those.
        parameters: for every parameter of the model one axis for each of its dimensions.
        inputs: what the model takes, for checking that its function is preserved.
        outputs: by name, the axes of what the model returns beside its logits (hidden states, attention maps), whose
            basis an alignment changes in a known way; only those that it changes.
        norms: norms whose gains `fusionlab.symmetry.folding.fold` can fold.
        layer_scales: layer scales that it can absorb.
        centred: streams that are only read through LayerNorms, so that their mean over features is never seen.
        folded: whether this describes a model after folding (rotations of the stream, gains fixed to one).
        after_folding: what describes the same model after folding; None where there is nothing to fold.
        notes: symmetries that the architecture might be thought to have and that are left out, with the reason.
    """

    architecture: str
    spaces: Mapping[str, Space]
    parameters: Mapping[str, tuple[Axis, ...]]
    inputs: tuple[Input, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    norms: tuple[Norm, ...] = ()
    layer_scales: tuple[LayerScale, ...] = ()
    centred: tuple[str, ...] = ()
    folded: bool = False
    after_folding: Blueprint | None = field(default=None, repr=False)

    @property
    def dimension(self) -> int:
        """Continuous degrees of freedom of the whole symmetry."""
        return sum(space.dimension for space in self.spaces.values())

    @property
    def fingerprint(self) -> str:
        """A hash of spaces and axes: equal for models that the same alignment fits."""
        description = repr((self.architecture, sorted(self.spaces.items()), sorted(self.parameters.items())))
        return hashlib.sha256(description.encode()).hexdigest()[:16]

    def touching(self, names: Iterable[str]) -> dict[str, tuple[Axis, ...]]:
        """The parameters that at least one of the named spaces acts on."""
        chosen = set(names)
        return {
            parameter: axes
            for parameter, axes in self.parameters.items()
            if any(space in chosen for axis in axes for space in spaces_of(axis))
        }

    def untouched(self) -> tuple[str, ...]:
        """The coverage report: parameters that no space acts on, in order."""
        touched = self.touching(self.spaces)
        return tuple(name for name in self.parameters if name not in touched)

    def roles(self) -> tuple[str, ...]:
        """The roles of its spaces, each once, in order."""
        return tuple(dict.fromkeys(space.role for space in self.spaces.values()))

    def check(self, state: Mapping[str, Tensor], what: str = "the model") -> None:
        """Refuse a state that this blueprint does not describe to the letter.

        Args:
            state: parameters (and persistent buffers) by name.
            what: how to call the state in the error, a file name for instance.

        Raises:
            SymmetryError: a parameter is missing, unknown to the blueprint, or of another shape.
        """
        if missing := [name for name in self.parameters if name not in state]:
            raise SymmetryError(f"{what} lacks the parameter {missing[0]!r} that {self.architecture} models have")
        if extra := [name for name in state if name not in self.parameters]:
            raise SymmetryError(
                f"{what} has the parameter {extra[0]!r}, which the description of {self.architecture} does not know, "
                f"so that no change of basis can be shown to preserve its function"
            )
        for name, axes in self.parameters.items():
            shape = tuple(state[name].shape)
            expected = tuple(axis.size for axis in axes)
            fits = len(shape) == len(expected) and all(e in (None, s) for e, s in zip(expected, shape, strict=True))
            if not fits:
                wanted = " x ".join("any" if size is None else str(size) for size in expected)
                found = " x ".join(map(str, shape)) or "a scalar"
                raise SymmetryError(f"{what} has {name!r} of shape {found} where its config says {wanted}")


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
    norms: dict[str, Norm] = field(default_factory=dict)
    layer_scales: list[LayerScale] = field(default_factory=list)
    centred: list[str] = field(default_factory=list)
    _rotating: set[str] = field(default_factory=set)

    def space(
        self,
        name: str,
        group: Group,
        role: str,
        layer: int | None = None,
        index: tuple[str, ...] = (),
    ) -> Along:
        """Declare a space and return the axis that runs along it."""
        for outer in index:
            if not isinstance(self.spaces[outer].group, Permutation):
                raise TypeError(f"{outer} indexes {name} but is not a space of permutations")
        copies = tuple(self.spaces[outer].group.size for outer in index)
        self.spaces[name] = Space(name, group, role, layer, index, copies)
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
                gain has no place to be folded into, and permutations are all there is.
        """
        if tied:
            self.leaves_out(f"rotations of {name}: the output embedding is the input embedding; untie them to rotate")
            return self.space(name, Permutation(size), role="residual")
        self._rotating.add(name)
        if norm == "layer" and centred:
            self.centred.append(name)
        rotations = OrthogonalFixingOnes(size) if norm == "layer" else Orthogonal(size)
        return self.space(name, rotations if self.folded else Permutation(size), role="residual")

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
        """Note that dimension `dim` of `weight` reads `source`, if that is a norm; `linear` does it by itself.

        Args:
            rows: of a fused projection, the first and the end of the stretch of outputs that reads it; all if None.
        """
        if isinstance(source, Normed) and source.norm in self.norms:
            norm = self.norms[source.norm]
            self.norms[source.norm] = replace(norm, readers=(*norm.readers, Reader(weight, dim, bias, rows)))

    def norm(
        self, name: str, axis: Axis | None, bias: bool = True, offset: float = 0.0, padded: bool = False
    ) -> Normed:
        """An element-wise affine norm along `axis`: gain, and bias if it has one.

        Args:
            offset: what the model adds to the stored gain.
            padded: whether the model puts zeros beside its output before it is read.

        Returns:
            Its output, to be handed to what reads it.
        """
        foldable = axis is not None and any(space in self._rotating for space in spaces_of(axis))
        if foldable:
            self.norms[name] = Norm(f"{name}.weight", f"{name}.bias" if bias else None, offset, padded=padded)
        self.parameter(f"{name}.weight", None if foldable and self.folded else axis)
        if bias:
            self.parameter(f"{name}.bias", axis)
        return Normed(axis, name)

    def copies(self, source: Normed, count: int) -> Normed:
        """Several vectors of a norm's output laid one after the other, two tokens' for instance."""
        return Normed(None if source.axis is None else Concat(*[source.axis] * count), source.norm)

    def layer_scale(self, name: str, axis: Axis | None, writer: str, bias: bool = True) -> None:
        """A learned factor for each feature of what the linear map `writer` adds to the stream."""
        foldable = axis is not None and any(space in self._rotating for space in spaces_of(axis))
        if foldable:
            self.layer_scales.append(LayerScale(name, f"{writer}.weight", f"{writer}.bias" if bias else None))
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
            tuple(self.norms.values()),
            tuple(self.layer_scales),
            tuple(self.centred),
            self.folded,
        )
