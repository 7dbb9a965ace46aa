"""Types that most of the project shares."""

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

# Parameters and buffers by name.
State = Mapping[str, Tensor]
# Inputs of a model by name, with ``labels`` or without; the first dimension of each counts examples.
Batch = Mapping[str, Tensor]
# A model of some class, where what comes out has the class of what goes in.
Model = TypeVar("Model", bound=nn.Module)
