"""Blueprints: for one architecture, every parameter's axes. Pure description, no arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Axis, spaces_of
from fusionlab.symmetry.evidence import Trial
from fusionlab.symmetry.groups import Copies, Group
from fusionlab.symmetry.html import html_table
from fusionlab.symmetry.inputs import Input
from fusionlab.symmetry.roles import Role
from fusionlab.symmetry.stacks import apart, entries_of, stacked

# Gauges that are no elements of a group, so that a blueprint says whether a model is in them.
FOLDED, BIASES = "folded", "biases"


class SymmetryError(ValueError):
    """A model and a blueprint, or a blueprint and an alignment, do not fit; one sentence says where."""


@dataclass(frozen=True)
class Space:
    """A hidden vector space whose basis is arbitrary.

    Attributes:
        name: unique inside a blueprint, such as ``layers.3.qk``.
        group: what may act on one copy of it.
        role: its kind.
        layer: the transformer layer it belongs to, or None.
        index: the permutation spaces that index its copies, outermost first; their permutations move the copies.
        copies: how many copies each of those gives.
    """

    name: str
    group: Group
    role: Role
    layer: int | None = None
    index: tuple[str, ...] = ()
    copies: Copies = ()

    @property
    def count(self) -> int:
        """The number of copies."""
        return torch.Size(self.copies).numel()

    @property
    def dimension(self) -> int:
        """Continuous degrees of freedom over all copies."""
        return self.group.dimension * self.count


@dataclass(frozen=True)
class Reader:
    """A linear map behind a norm.

    Attributes:
        weight: its weight's name.
        dim: the weight's dimension that reads.
        rows: of what it writes, the first and the end of the stretch that reads the norm; None where all does.
    """

    weight: str
    dim: int
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Norm:
    """An affine norm whose gain can be folded into what reads it.

    Attributes:
        weight: the gain's name.
        bias: the bias's name, or None.
        readers: all that reads it.
        padded: whether zeros are put beside its output before it is read, so that its bias cannot move on.
        offset: what is added to the gain before it multiplies, 1 where it is stored as its difference from one.
    """

    weight: str
    bias: str | None
    readers: tuple[Reader, ...] = ()
    padded: bool = False
    offset: float = 0.0


@dataclass(frozen=True)
class LayerScale:
    """A learned factor for each feature of a branch's output, which its last linear map can absorb."""

    scale: str
    weight: str


@dataclass(frozen=True)
class Blueprint:
    """The symmetry of one architecture: its spaces, and for every parameter the axes they act on.

    Attributes:
        architecture: the name it is registered under.
        spaces: by name, a space that indexes others before those.
        parameters: for every parameter of the model, or stack of parameters, one axis for each of its dimensions.
        inputs: what the model takes, for checking that its function is preserved.
        outputs: by name, the axes of what the model returns beside its logits (hidden states, attention maps), whose
            basis an alignment changes in a known way; only those that it changes.
        biases: by weight of a linear map, the name of its bias; maps without one are left out.
        norms: norms whose gains `fusionlab.symmetry.folding.fold` can fold.
        layer_scales: layer scales that it can absorb.
        centred: streams that are only read through LayerNorms, so that their mean over features is never seen.
        seen_key_biases: spaces of queries and keys whose key bias the softmax does not ignore.
        unseen_means: parameters and dimensions along which a constant may be added: a LayerNorm subtracts it from all
            that is written to it, a softmax from the logits of all experts.
        same: further names of one tensor (tied, or of a module in several places), and the first name of each.
        stacks: by a name that no parameter has, those of experts that are modules of their own, in order: whoever acts
            through axes sees them as one tensor (`fusionlab.symmetry.stacks`), all others as the model has them.
        folded: whether this describes a model after folding (rotations of the stream, gains fixed to one).
        unbiased: whether this describes a model after `fusionlab.symmetry.biases.clear_biases`.
        after_folding: what describes the same model after folding; None where there is nothing to fold.
        notes: symmetries that the architecture might be thought to have and that are left out, with the reason.
        origin: where all this is from, in words: the file that it is written in, or the model that it was found on.
        trials: by space, for one that was inferred, the groups that were tried, in order.
    """

    architecture: str
    spaces: Mapping[str, Space]
    parameters: Mapping[str, tuple[Axis, ...]]
    inputs: tuple[Input, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    biases: Mapping[str, str] = field(default_factory=dict)
    norms: tuple[Norm, ...] = ()
    layer_scales: tuple[LayerScale, ...] = ()
    centred: tuple[str, ...] = ()
    seen_key_biases: tuple[str, ...] = ()
    unseen_means: tuple[tuple[str, int], ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folded: bool = False
    unbiased: bool = False
    after_folding: Blueprint | None = field(default=None, repr=False)
    origin: str = field(default="", compare=False)
    trials: Mapping[str, tuple[Trial, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __repr__(self) -> str:
        sizes = f"{len(self.spaces)} spaces, {len(self.parameters)} parameters, dimension {self.dimension:,}"
        return f"Blueprint({self.architecture}: {sizes})"

    def _repr_html_(self) -> str:
        rows = []
        for (role, group), spaces in self.by_role().items():
            dimension = sum(space.dimension for space in spaces)
            rows.append((role, group, len(spaces), f"{dimension:,}" if dimension else "discrete"))
        return html_table(repr(self), ("role", "group", "spaces", "dimension"), rows)

    def by_role(self) -> dict[tuple[str, str], list[Space]]:
        """Spaces by role and group, both in words, in the order in which they are declared."""
        found: dict[tuple[str, str], list[Space]] = {}
        for space in self.spaces.values():
            found.setdefault((str(space.role), str(space.group)), []).append(space)
        return found

    @property
    def dimension(self) -> int:
        """Continuous degrees of freedom of the whole symmetry."""
        return sum(space.dimension for space in self.spaces.values())

    @property
    def fingerprint(self) -> str:
        """A hash of spaces and axes: equal for models that the same alignment fits."""
        described = (self.architecture, sorted(self.spaces.items()), sorted(self.parameters.items()))
        description = repr((*described, "unbiased") if self.unbiased else described)
        return hashlib.sha256(description.encode()).hexdigest()[:16]

    def without_biases(self) -> Blueprint:
        """The same architecture once the biases that nothing needs are cleared."""
        return replace(self, unbiased=True, after_folding=self.after_folding and self.after_folding.without_biases())

    def found_in(self, origin: str, notes: tuple[str, ...] = ()) -> Blueprint:
        """The same with its origin, in words, and with further notes."""
        after = self.after_folding and self.after_folding.found_in(origin, notes)
        return replace(self, origin=origin, after_folding=after, notes=(*self.notes, *notes))

    @property
    def gauge(self) -> tuple[str, ...]:
        """The gauges that it describes a model in, of `FOLDED` and `BIASES`."""
        return (*((FOLDED,) if self.folded else ()), *((BIASES,) if self.unbiased else ()))

    def in_gauge(self, names: Collection[str]) -> Blueprint:
        """The same architecture in a gauge, for models as they are then.

        Args:
            names: `FOLDED` for gains and layer scales folded (without effect where there is nothing to fold), `BIASES`
                for the biases cleared that nothing needs. Names of gauges that change no blueprint may be among them.
        """
        chosen = self.after_folding if FOLDED in names and self.after_folding is not None else self
        return chosen.without_biases() if BIASES in names else chosen

    def touching(self, names: Iterable[str]) -> dict[str, tuple[Axis, ...]]:
        """The parameters that at least one of the named spaces acts on."""
        places = {place for name in set(names) for place in self._acted_on.get(name, ())}
        return {parameter: self.parameters[parameter] for parameter in map(self._names.__getitem__, sorted(places))}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    @cached_property
    def _acted_on(self) -> Mapping[str, list[int]]:
        """The places of the parameters that each space acts on, by its name."""
        found: dict[str, list[int]] = {}
        for place, axes in enumerate(self.parameters.values()):
            for space in {space for axis in axes for space in spaces_of(axis)}:
                found.setdefault(space, []).append(place)
        return found

    def untouched(self) -> tuple[str, ...]:
        """The coverage report: parameters that no space acts on, in order."""
        touched = self.touching(self.spaces)
        return tuple(name for name in self.parameters if name not in touched)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters in a model's state, of stacks those of their entries."""
        return tuple(entries_of(self.parameters, self.stacks))

    def by_name(self) -> dict[str, tuple[Axis, ...]]:
        """The axes of every parameter in a model's state; of a stack's entry those that it has by itself."""
        return {
            entry: axes[1:] if name in self.stacks else axes
            for name, axes in self.parameters.items()
            for entry in self.stacks.get(name, (name,))
        }

    def stacked(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """A model's parameters by the names of `parameters`; a state that has those is returned as it is."""
        return stacked(state, self.stacks)

    def roles(self) -> tuple[Role, ...]:
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
        state = apart(state, self.stacks) if self.stacks else state
        if missing := [name for name in self.names if name not in state]:
            raise SymmetryError(f"{what} lacks the parameter {missing[0]!r} that {self.architecture} models have")
        known = set(self.names)
        if extra := [name for name in state if name not in known]:
            raise SymmetryError(
                f"{what} has the parameter {extra[0]!r}, which the description of {self.architecture} does not know, "
                f"so that no change of basis can be shown to preserve its function"
            )
        for name, axes in self.by_name().items():
            shape = tuple(state[name].shape)
            expected = tuple(axis.size for axis in axes)
            fits = len(shape) == len(expected) and all(e in (None, s) for e, s in zip(expected, shape, strict=True))
            if not fits:
                wanted = " x ".join("any" if size is None else str(size) for size in expected)
                found = " x ".join(map(str, shape)) or "a scalar"
                raise SymmetryError(f"{what} has {name!r} of shape {found} where its config says {wanted}")
