"""Parameters that PEFT changes by name (``target_parameters``), such as experts in a stack, and scales of all changes.

PEFT wraps the module that holds such parameters once for each of them, the one that the class has first innermost. Its
files call the factors by the module and the depth of the wrapping, so that which parameter they change is known with
the class alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.errors import InputError

# What is wrapped, in names of files.
_INNER = ".base_layer"
# Patterns of names that no name takes long to be held against.
_NAMES = re.compile(r"\^?(\.\*\\\.)?([\w.-]|\\\.|\\d\+){1,200}\$?")


@dataclass(frozen=True)
class Scales:
    """Alpha and rank of every layer.

    Attributes:
        alpha: of layers without one of their own.
        alphas: of others, by patterns of their names; the first that fits counts.
        is_rank_stabilised: scales are of the root of the rank.
        is_decomposed: lengths of rows are learned.
    """

    alpha: float
    alphas: Mapping[str, float]
    is_rank_stabilised: bool
    is_decomposed: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], path: Path) -> Scales:
        """The scales that an adapter's config describes.

        Args:
            config: of the adapter.
            path: of its file, for messages.

        Raises:
            InputError: alphas that are no finite numbers, or patterns that are no names.
        """
        alpha, alphas = config.get("lora_alpha", 8), config.get("alpha_pattern") or {}
        numbers = [alpha, *(alphas.values() if isinstance(alphas, dict) else [None])]
        if any(isinstance(n, bool) or not isinstance(n, int | float) or not math.isfinite(n) for n in numbers):
            raise InputError(f"{path}: lora_alpha is {alpha!r} and alpha_pattern {alphas!r}; expected finite numbers")
        if strange := next((pattern for pattern in alphas if not _NAMES.fullmatch(pattern)), None):
            raise InputError(f"{path}: alpha_pattern holds {strange!r}; expected names of layers, numbers as \\d+")
        return cls(alpha, alphas, config.get("use_rslora") is True, config.get("use_dora") is True)

    def scale(self, name: str, rank: int) -> float:
        """The scale of a product.

        Args:
            name: of the layer or parameter that it changes.
            rank: of it.
        """
        fitting = (alpha for key, alpha in self.alphas.items() if re.match(rf"(.*\.)?({key})$", name))
        return next(fitting, self.alpha) / (math.sqrt(rank) if self.is_rank_stabilised else rank)


@dataclass(frozen=True)
class Wrapped:
    """The factors of one module whose parameters may be changed by name.

    Attributes:
        names: of its own parameters that the adapter names, whether the class has them or not.
        levels: factors, innermost first, each as of a layer of this name.
        scales: of the adapter.
    """

    names: frozenset[str]
    levels: tuple[Change, ...]
    scales: Scales

    def stacks(self, name: str, module: nn.Module) -> dict[str, Stack]:
        """The changes of a module's parameters, by their full names and in the order of the class.

        Args:
            name: of the module.
            module: of the class, with weights or without.

        Returns:
            None of them where the module has no such parameter: it is a layer whose weight is changed then.

        Raises:
            ValueError: the module has other parameters than the factors are of.
        """
        named = {key: one for key, one in module.named_parameters(recurse=False) if key in self.names}
        if not named:
            return {}
        if len(named) != len(self.levels):
            raise ValueError(f"{len(self.levels)} pairs of factors for {', '.join(named)} of {name}")
        found = {}
        for (key, parameter), level in zip(named.items(), self.levels, strict=True):
            if level.magnitude is not None or level.bias is not None:
                raise ValueError(f"more than two factors for {key} of {name}")
            if parameter.ndim not in (2, 3):
                raise ValueError(f"factors for {key} of {name}, of shape {tuple(parameter.shape)},")
            is_stack = parameter.ndim == 3
            experts = len(parameter) if is_stack else 1
            found[f"{name}.{key}"] = _stack(level, f"{name}.{key}", experts, self.scales, is_turned(module, experts))
            if not found[f"{name}.{key}"].fits(tuple(parameter.shape)):
                raise ValueError(
                    f"factors of shapes {tuple(level.up.shape)} and {tuple(level.down.shape)} for {key} of {name}, of "
                    f"shape {tuple(parameter.shape)}"
                )
        return found


def is_turned(module: nn.Module, experts: int) -> bool:
    """True where PEFT multiplies factors for ``(experts, in, out)``, which it never does for one expert.

    Args:
        module: of the class that holds the parameter.
        experts: in it; 1 of a parameter of two dimensions.
    """
    return experts > 1 and getattr(module, "is_transposed", False) is True


def _stack(level: Change, name: str, experts: int, scales: Scales, is_turned: bool) -> Stack:
    """Factors of PEFT's layout by expert; there A has an expert's ranks together, and B a rank's experts."""
    ranks = level.down.shape[0]
    if level.down.ndim != 2 or level.up.ndim != 2 or ranks % experts or level.up.shape[1] != ranks:
        raise ValueError(
            f"factors of shapes {tuple(level.up.shape)} and {tuple(level.down.shape)} for {experts} experts in {name}"
        )
    rank = ranks // experts
    down = level.down.reshape(experts, rank, -1)
    up = level.up.reshape(-1, rank, experts).permute(2, 0, 1)
    return Stack(down, up, scales.scale(name, rank), is_turned)


def written_factors(stack: Stack) -> tuple[Tensor, Tensor]:
    """The factors A ``(experts * rank, in)`` and B ``(out, rank * experts)`` of a change, in PEFT's layout."""
    return stack.down.flatten(0, 1), stack.up.permute(1, 2, 0).flatten(1)


def wrapped_places(names: Iterable[str]) -> list[str]:
    """The names that factors of parameters have in PEFT's files: of their modules, and how deep they are wrapped.

    Args:
        names: of the parameters, in the order in which the class has them.
    """
    modules = [name.rpartition(".")[0] for name in names]
    return [module + _INNER * modules[place + 1 :].count(module) for place, module in enumerate(modules)]


def named_in(targets: Iterable[str], module: str) -> frozenset[str]:
    """The names of a module's own parameters that patterns of ``target_parameters`` name.

    Args:
        targets: full names of parameters, or ends of them.
        module: the name of the module.
    """
    places = ((target.rpartition(".")[0], target.rpartition(".")[2]) for target in targets)
    return frozenset(name for place, name in places if not place or f".{module}".endswith(f".{place}"))


def unwrapped(module: str) -> tuple[str, int]:
    """The name of a module as the class has it, and how deep in wrappings a file's name lies."""
    name, depth = module, 0
    while name.endswith(_INNER):
        name, depth = name.removesuffix(_INNER), depth + 1
    return name, depth
