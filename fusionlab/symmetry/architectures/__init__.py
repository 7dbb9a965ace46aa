"""One small declarative file for each family of architectures, found by the name it registers.

A model is looked up by its config's ``model_type`` (transformers) or, where it has none, by ``package.Class``
(timm, torch). To add a family, add a file here with one function decorated by `architecture`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from torch import nn

from fusionlab.symmetry.blueprint import Blueprint, SymmetryError

Describe = Callable[[Any, str], Blueprint]
_registry: dict[str, Describe] = {}


def architecture(*names: str) -> Callable[[Describe], Describe]:
    """Register a function ``(config, class name) -> Blueprint`` under model types or ``package.Class`` names.

    For a model without a config object (timm, torch) the model itself is handed over as its own config; only its
    attributes may be read, never its parameters.
    """

    def register(describe: Describe) -> Describe:
        for name in names:
            _registry[name] = describe
        return describe

    return register


def known_architectures() -> tuple[str, ...]:
    """Every name that `blueprint` knows, sorted."""
    return tuple(sorted(_registry))


def blueprint_from_config(config: Any, class_name: str) -> Blueprint:
    """The blueprint of a model class from its config alone.

    Args:
        config: a transformers config (anything with ``model_type``), or a timm or torch module.
        class_name: the model's class, ``BertForSequenceClassification`` for instance; it decides which head and
            which prefix the parameter names have.

    Raises:
        SymmetryError: the architecture or the class is not described here.
    """
    name = getattr(config, "model_type", None) or f"{type(config).__module__.split('.')[0]}.{class_name}"
    if name not in _registry:
        raise SymmetryError(
            f"no description of the architecture {name!r}: fusionlab knows {', '.join(known_architectures())}"
        )
    return _registry[name](config, class_name)


def blueprint(model: nn.Module) -> Blueprint:
    """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

    Args:
        model: a transformers or timm model.

    Raises:
        SymmetryError: the architecture is unknown, or the model's parameters are not those that its config promises.
    """
    description = blueprint_from_config(getattr(model, "config", model), type(model).__name__)
    description.check(model.state_dict())
    return description


def class_head(class_name: str, family: str, heads: dict[str, str]) -> str:
    """Which of a family's heads a class has.

    Args:
        class_name: such as ``RobertaForTokenClassification``.
        family: the class names' common beginning, such as ``Roberta``.
        heads: what may follow it (``Model``, ``ForTokenClassification``), each with the caller's name for it.

    Raises:
        SymmetryError: a class that is not listed.
    """
    if not class_name.startswith(family) or class_name.removeprefix(family) not in heads:
        known = ", ".join(family + ending for ending in heads)
        raise SymmetryError(f"no description of the model class {class_name}: fusionlab knows {known}")
    return heads[class_name.removeprefix(family)]


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
