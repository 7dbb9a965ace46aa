"""Places where a matching keeps what it computes from two models: memory, unless it is told another."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from typing import Protocol

from torch import Tensor

from fusionlab.types import State


class Keeper(Protocol):
    """A place for states and tables that a matching makes on its way.

    Attributes:
        holds_models: whole models are in memory, so that a further copy of one may be.
    """

    holds_models: bool

    def changed(self, state: State, names: Collection[str], make: Callable[[str], Tensor]) -> State:
        """A state some of whose parameters are others; `state` stays as it is.

        Args:
            state: parameters by name.
            names: of those that change.
            make: gives a changed parameter from what `state` has under its name, in the same shape and type.
        """

    def settled(self, state: State) -> State:
        """The same state, made for good: what it was made of is not looked at again."""

    def table(self) -> MutableMapping[str, Tensor]:
        """An empty table of tensors by name."""


class InMemory:
    """Everything in memory."""

    holds_models = True

    def changed(self, state: State, names: Collection[str], make: Callable[[str], Tensor]) -> State:
        """A new dict."""
        return {**state, **{name: make(name) for name in names}}

    def settled(self, state: State) -> State:
        """The state as it is."""
        return state

    def table(self) -> MutableMapping[str, Tensor]:
        """A dict."""
        return {}


IN_MEMORY = InMemory()
