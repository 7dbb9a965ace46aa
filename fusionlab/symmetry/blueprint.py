"""Blueprints: for one architecture, every parameter's axes. Pure description, no arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Along, Axis, Fixed, Per, spaces_of
from fusionlab.symmetry.groups import Copies, Group, Permutation


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
    """One input of a model: its name, its shape without the batch, and for token ids the size of the vocabulary."""

    name: str
    shape: tuple[int, ...]
    vocabulary: int | None = None

    def random(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
        """A random batch: normal numbers, or token ids."""
        if self.vocabulary is None:
            return torch.randn(batch, *self.shape, generator=generator, dtype=torch.float64).to(dtype)
        return torch.randint(self.vocabulary, (batch, *self.shape), generator=generator)


@dataclass(frozen=True)
class Blueprint:
    """The symmetry of one architecture: its spaces, and for every parameter the axes they act on.

    Attributes:
        architecture: the name it is registered under.
        spaces: by name, a space that indexes others before those.
        parameters: for every parameter of the model one axis for each of its dimensions.
        inputs: what the model takes, for checking that its function is preserved.
        notes: symmetries that the architecture might be thought to have and that are left out, with the reason.
    """

    architecture: str
    spaces: Mapping[str, Space]
    parameters: Mapping[str, tuple[Axis, ...]]
    inputs: tuple[Input, ...] = ()
    notes: tuple[str, ...] = ()

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
    are axes, None for one that no space touches.
    """

    architecture: str
    spaces: dict[str, Space] = field(default_factory=dict)
    parameters: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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

    def per(self, outer: Along, inner: Axis) -> Per:
        """Blocks permuted by `outer`, each laid out as `inner`."""
        return Per(outer.space, outer.size, inner)

    def parameter(self, name: str, *axes: Axis | None) -> None:
        """One parameter, one axis for each dimension."""
        self.parameters[name] = tuple(Fixed() if axis is None else axis for axis in axes)

    def linear(self, name: str, reads: Axis | None, writes: Axis | None, bias: bool = True) -> None:
        """A torch.nn.Linear: weight ``(out, in)`` and bias ``(out,)``."""
        self.parameter(f"{name}.weight", writes, reads and reads.dual())
        if bias:
            self.parameter(f"{name}.bias", writes)

    def norm(self, name: str, axis: Axis | None, bias: bool = True) -> None:
        """An element-wise affine normalisation along `axis`: gain, and bias if it has one."""
        self.parameter(f"{name}.weight", axis)
        if bias:
            self.parameter(f"{name}.bias", axis)

    def embedding(self, name: str, writes: Axis | None) -> None:
        """A torch.nn.Embedding: weight ``(rows, features)``."""
        self.parameter(f"{name}.weight", None, writes)

    def takes(self, name: str, shape: tuple[int, ...], vocabulary: int | None = None) -> None:
        """An input of the model."""
        self.inputs.append(Input(name, shape, vocabulary))

    def leaves_out(self, reason: str) -> None:
        """Note a symmetry that this architecture does not have, and why."""
        self.notes.append(reason)

    def build(self) -> Blueprint:
        """The finished blueprint."""
        return Blueprint(
            self.architecture, dict(self.spaces), dict(self.parameters), tuple(self.inputs), tuple(self.notes)
        )
