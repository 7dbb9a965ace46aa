"""The interface of every kind of statistics during one pass over data, so that several kinds share the pass.

There are two kinds of accumulators. A `Watcher` (Gram matrices, activations) only looks at what linear maps read and
write while the model runs; all watchers share one forward per batch, without gradients. An `OwnPass` (Fisher
information) runs the model itself, with gradients. A class joins with `accumulator`; its constructor's keywords are the
settings of `fusionlab.statistics.gather.gather`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, TypedDict, TypeVar

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.statistics.linear_maps import LinearMaps
from fusionlab.statistics.seen import Seen
from fusionlab.statistics.statistics import Statistics
from fusionlab.types import Batch


class Common(TypedDict):
    """Keywords that all kinds of statistics carry: ``Fisher(**common, diagonal=...)``."""

    architecture: str
    basis: str
    examples: int
    settings: Mapping[str, str]


def with_settings(common: Common, **settings: str) -> Common:
    """The same with more settings."""
    return {**common, "settings": {**common["settings"], **settings}}


class Accumulator(ABC):
    """One kind of statistics while it is gathered; each process has its own, and they are joined at the end.

    Its tensors live on the device that the model is on during the pass, or on the CPU.

    Attributes:
        kind: its name.
        differentiates: whether it needs gradients.
    """

    kind: ClassVar[str]
    differentiates: bool = False

    @abstractmethod
    def sums(self) -> dict[str, Tensor]:
        """Tensors to be summed over processes; the same names and shapes in each, also in one that saw no batch."""

    def samples(self) -> dict[str, Tensor]:
        """Tensors to be joined over processes along dimension 0; the same names and other dimensions in each."""
        return {}

    @abstractmethod
    def finish(self, totals: Mapping[str, Tensor], common: Common) -> Statistics:
        """The statistics.

        Args:
            totals: `sums` and `samples` of all processes together.
            common: what the statistics carry beside; an accumulator adds its own settings.
        """


class OwnPass(Accumulator):
    """An accumulator that runs the model itself, gradients allowed."""

    differentiates = True

    @abstractmethod
    def start(self, model: nn.Module) -> None:
        """Called once before the first batch, in each process, with the model in eval mode on the pass's device."""

    @abstractmethod
    def update(self, model: nn.Module, batch: Batch) -> None:
        """Add one batch. Gradients are enabled, and no tensor of `batch` was made in inference mode.

        Args:
            model: as in `start`; it must be left as it was, gradients included.
            batch: as `fusionlab.forward.forward` takes it, on the model's device.
        """


class Watcher(Accumulator):
    """An accumulator that looks at what linear maps read and write, and at gradients where it `differentiates`."""

    @abstractmethod
    def start(self, maps: LinearMaps) -> None:
        """Called once before the first batch, in each process, with the model's linear maps and their layouts."""

    def begin(self, batch: Batch) -> None:
        """Called before each batch's forward."""

    @abstractmethod
    def see(self, seen: Seen) -> None:
        """Called whenever a linear map has read data and written, in order of the forward."""

    def see_gradient(self, seen: Seen, gradient: Tensor) -> None:
        """Called after the forward for each call that was seen, where the watcher differentiates.

        Args:
            seen: the call.
            gradient: of the log-likelihood of labels that are drawn from the model's outputs, summed over the batch, by
                each of the rows that it wrote: shape ``(rows, features)``.
        """


Kind = TypeVar("Kind", bound=type[Accumulator])
_kinds: dict[str, type[Accumulator]] = {}


def accumulator(cls: Kind) -> Kind:
    """Register a kind of statistics under its ``kind``."""
    _kinds[cls.kind] = cls
    return cls


def kinds() -> tuple[str, ...]:
    """The kinds of statistics that can be gathered."""
    return tuple(_kinds)


def find_kind(kind: str) -> Callable[..., Accumulator]:
    """The accumulator of one kind.

    Raises:
        InputError: there is none.
    """
    if kind not in _kinds:
        raise InputError(f"there are no {kind!r} statistics; expected some of {', '.join(kinds())}")
    return _kinds[kind]
