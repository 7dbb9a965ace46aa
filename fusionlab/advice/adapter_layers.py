"""Changes of an adapter by layer, and the weights of its base model where the factors alone do not tell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fusionlab.checkpoints.adapters import Adapter, placed
from fusionlab.checkpoints.changes import Change
from fusionlab.streaming import StoredModel
from fusionlab.streaming.adapted import ChangedTensor
from fusionlab.streaming.opening import changed_layers

TYPE_CHECKING = False  # what knows a class's parameters imports transformers
if TYPE_CHECKING:
    from fusionlab.checkpoints.weightless import Weightless


@dataclass(frozen=True)
class AdapterLayers:
    """The changes of one adapter.

    Attributes:
        adapter: as it is stored.
        base: its base model; None where it is not here, or not stored as folders of safetensors are.
    """

    adapter: Adapter = field(repr=False)
    base: StoredModel | None = field(repr=False)

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """By layer; of experts in one tensor by its name and the expert's number, where the class is known."""
        if not self.adapter.wrapped or self.base is None or self._made is None:
            return self.adapter.changes
        changes, stacks = placed(self.adapter, self._made.model, self.base.source)
        return changes | {
            f"{name}.{number}": stack.expert(number)
            for name, stack in stacks.items()
            for number in range(len(stack.down))
        }

    @property
    def hides(self) -> bool:
        """True if it changes parameters by name, and its base model does not say which."""
        return bool(self.adapter.wrapped) and self._made is None

    @cached_property
    def rows(self) -> Mapping[str, ChangedTensor]:
        """Weights of the base model with their changes, by layer; none where they are not at hand."""
        if self.base is None or self._made is None:
            return {}
        return changed_layers(self.adapter.changes, self.base, self._made)

    @cached_property
    def _made(self) -> Weightless | None:
        from fusionlab.streaming.classes import class_of  # noqa: PLC0415

        if self.base is None or self.base.format != "transformers":
            return None
        return class_of(self.base)
