"""Statistics of one pass over data, tied to the basis they were measured in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.types import State


def basis_of(state: State) -> str:
    """A digest of a model's parameters and buffers: their names, shapes, types and every bit of them.

    Statistics carry it, so that they are only ever used with the model, in the basis, that they were measured on.
    """
    digest = Digest()
    for name in sorted(state):
        digest.add(name, state[name])
    return digest.hexdigest()


class Digest:
    """`basis_of` a model of which one tensor at a time is in memory."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, name: str, tensor: Tensor) -> None:
        """Take in a parameter or buffer; all must come, by their sorted names."""
        tensor = tensor.detach().cpu().contiguous()
        self._digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
        self._digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)

    def hexdigest(self) -> str:
        """The digest of what has come."""
        return self._digest.hexdigest()


def missing_kinds(kinds: Sequence[str], lacking: str = "", held: Collection[str] = ()) -> InputError:
    """The error of statistics that a merge needs and nothing gives.

    Args:
        kinds: that are missing of a model, at least one.
        lacking: the model that has none, where statistics of others were given, or other kinds of its own.
        held: the kinds that were given of this model.
    """
    given, way = "", "`fusionlab gather`"
    if held:
        given = f", and those given of {lacking} are {' and '.join(held)} alone"
        way = f"`fusionlab gather --kinds {','.join(kinds)}`"
    elif lacking:
        given = f", and those given were measured on other models than {lacking} (or before it was changed)"
    return InputError(
        f"{' and '.join(kinds)} statistics of each model are needed{given}; expected data to gather them on, or "
        f"statistics that {way} wrote"
    )


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of one model over one set of data.

    Attributes:
        architecture: the model's class.
        basis: `basis_of` the model that they describe.
        examples: how many examples were seen, all processes together.
        settings: how they were gathered, in words, for the reader and for the file.
    """

    kind: ClassVar[str] = ""
    architecture: str
    basis: str
    examples: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def check(self, state: State, what: str = "the model") -> None:
        """Refuse statistics of another model, or of the same model in another basis.

        Raises:
            InputError: the state is not the one that was measured.
        """
        if basis_of(state) != self.basis:
            raise InputError(
                f"the {self.kind} statistics were measured on another model, or on {what} in another basis; "
                f"expected statistics of {what} as it is"
            )

    def omissions(self) -> dict[str, list[str]]:
        """The parameters that they say nothing about, by the reason."""
        found: dict[str, list[str]] = {}
        for part in filter(None, self.settings.get("left_out", "").split("; ")):
            names, _, reason = part.rpartition(": ")
            found.setdefault(reason, []).extend(names.split(", "))
        return found

    def refuse_strangers(self, state: State, what: str = "the model") -> None:
        """Refuse what is about nothing in the whole model; kinds that are tied to its maps need not look.

        Raises:
            InputError: names it.
        """


@dataclass(frozen=True)
class LinearMap:
    """One linear map of a model, as far as its input is concerned.

    Attributes:
        inputs: under which name its input's Gram matrix is kept; maps that read the same tensor share one.
        dim: the weight's dimension that reads: 1 for ``Linear`` of shape ``(out, in)``, 0 for ``Conv1D`` of shape
            ``(in, out)``; for a patch convolution ``(out, channels, height, width)`` it is 1 and stands for all
            dimensions from there on, flattened.
        bias: the bias's parameter name, or None.
    """

    inputs: str
    dim: int
    bias: str | None


def features_read(shape: Sequence[int]) -> int:
    """The count of features that a weight of some shape reads, as far as that tells; 0 for what is no linear map.

    Args:
        shape: ``(out, in)``; of patches ``(out, channels, height, width)``; of stacked experts ``(experts, out, in)``.
    """
    if len(shape) < 2:
        return 0
    return shape[-1] if len(shape) == 3 else math.prod(shape[1:])


@dataclass(frozen=True, kw_only=True)
class Grams(Statistics):
    """Gram matrices of the inputs of linear maps, with a column of ones for the bias.

    Attributes:
        matrices: by input name, the sum of ``x x^T`` over all rows (tokens, patches) that count, x with a one appended:
            shape ``(in + 1, in + 1)``, float32 or float64.
        rows: by input name, how many rows were summed.
        maps: by weight's parameter name, the linear map.
    """

    kind: ClassVar[str] = "gram"
    matrices: Mapping[str, Tensor]
    rows: Mapping[str, int]
    maps: Mapping[str, LinearMap]

    def mean(self, weight: str) -> Tensor:
        """The mean of ``x x^T`` over the rows that reach one weight, float64, shape ``(in + 1, in + 1)``."""
        inputs = self.maps[weight].inputs
        return self.matrices[inputs].double() / max(1, self.rows[inputs])


@dataclass(frozen=True, kw_only=True)
class Fisher(Statistics):
    """The diagonal of the Fisher information matrix: the mean over examples of squared gradients.

    Attributes:
        diagonal: by parameter name, the parameter's shape, float32 or better, never negative.
    """

    kind: ClassVar[str] = "fisher"
    diagonal: Mapping[str, Tensor]

    def refuse_strangers(self, state: State, what: str = "the model") -> None:
        """Refuse diagonals of what is no parameter of the whole model, as a damaged file may name.

        Raises:
            InputError: names the diagonal.
        """
        for name, diagonal in self.diagonal.items():
            if name not in state or state[name].shape != diagonal.shape:
                raise InputError(
                    f"the fisher statistics hold {name!r} of shape {tuple(diagonal.shape)}, which is no parameter of "
                    f"{what}; expected its parameters only"
                )


@dataclass(frozen=True, kw_only=True)
class Activations(Statistics):
    """Inputs and outputs of linear maps at a sample of rows, the same rows for every model given the same data.

    Attributes:
        inputs: by weight's parameter name, what it reads: shape ``(features, samples)``, without a row of ones.
        outputs: by weight's parameter name, what it writes, bias included: shape ``(features, samples)``.
        maps: by weight's parameter name, the linear map: which dimension reads, and which maps read the same tensor.
        drawn: a digest of which rows were sampled of what data; activations of two models can be compared only if it
            is the same.
        gradients: by weight's parameter name, of a log-likelihood by what it writes, at the same rows: shape
            ``(features, samples)``; empty where they were not asked for.
    """

    kind: ClassVar[str] = "activations"
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    maps: Mapping[str, LinearMap]
    drawn: str
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
