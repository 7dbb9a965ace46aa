"""Types that most of the project shares."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor, nn

# Parameters and buffers by name.
State = Mapping[str, Tensor]
# Inputs of a model by name, with ``labels`` or without; the first dimension of each counts examples.
Batch = Mapping[str, Tensor]
# A model of some class, where what comes out has the class of what goes in; of paths alone a module.
if TYPE_CHECKING:
    import typing_extensions  # of the type checker: Python itself has defaults from 3.13 on

    Model = typing_extensions.TypeVar("Model", bound=nn.Module, default=nn.Module)
else:
    Model = TypeVar("Model", bound=nn.Module)
