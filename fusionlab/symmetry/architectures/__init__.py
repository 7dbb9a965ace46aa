"""One small declarative file for each family of architectures, found by the name it registers.

A model is looked up by its config's ``model_type`` (transformers) or, where it has none, by ``package.Class``
(timm, torch). To add a family, add a file here with one function decorated by `architecture`.
"""

import copy
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from packaging.version import Version
from torch import nn

from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder

Describe = Callable[[BlueprintBuilder, Any, str], None]
_registry: dict[str, Describe] = {}
# Model classes rename their parameters now and then: from which version on, and before which, they are as described.
SUPPORTED_VERSIONS = {"transformers": ("5.17", "6"), "timm": ("1.0.31", "2")}


def architecture(*names: str) -> Callable[[Describe], Describe]:
    """Register a function ``(builder, config, class name)`` under model types or ``package.Class`` names.

    It writes the blueprint down on the builder; ``builder.folded`` matters only to the builder's own methods.

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


def architecture_name(config: Any, class_name: str) -> str:
    """The config's ``model_type``, or ``package.Class`` where a module stands in for one."""
    return getattr(config, "model_type", None) or f"{type(config).__module__.split('.')[0]}.{class_name}"


def blueprint_from_config(config: Any, class_name: str, folded: bool = False) -> Blueprint:
    """The blueprint of a model class from its config alone.

    Args:
        config: a transformers config (anything with ``model_type``), or a timm or torch module.
        class_name: the model's class, ``BertForSequenceClassification`` for instance; it decides which head and
            which prefix the parameter names have.
        folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

    Raises:
        SymmetryError: the architecture or the class is not described here.
    """
    name = architecture_name(config, class_name)
    if name not in _registry:
        raise SymmetryError(
            f"no description of the architecture {name!r}: fusionlab knows {', '.join(known_architectures())}"
        )
    _refuse_other_versions(type(config).__module__.split(".")[0])
    builders = BlueprintBuilder(name), BlueprintBuilder(name, folded=True)
    for builder in builders:
        _registry[name](builder, config, class_name)
    as_is, after = (builder.build().found_in(f"written in {_file_of(_registry[name])}") for builder in builders)
    if not (as_is.norms or as_is.layer_scales or as_is.centred):
        return as_is
    return after if folded else replace(as_is, after_folding=after)


def _file_of(describe: Describe) -> str:
    """The file that a description is written in, such as ``symmetry/architectures/bert.py``."""
    return f"{describe.__module__.removeprefix('fusionlab.').replace('.', '/')}.py"


def _refuse_other_versions(package: str) -> None:
    """Refuse a library whose parameter names may be others than the descriptions were written for."""
    if package in SUPPORTED_VERSIONS:
        first, beyond = SUPPORTED_VERSIONS[package]
        installed = Version(version(package))
        if not Version(first) <= installed < Version(beyond):
            raise SymmetryError(
                f"{package} {installed} is installed, whose parameter names may differ; "
                f"expected {package} from {first} up to, not including, {beyond}"
            )


def is_before(package: str, release: str) -> bool:
    """The installed version of a package is an earlier one, of those that are supported."""
    return Version(version(package)) < Version(release)


def blueprint(model: nn.Module, folded: bool = False) -> Blueprint:
    """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

    Args:
        model: a transformers or timm model.
        folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

    Raises:
        SymmetryError: the architecture is unknown, or the model's parameters are not those that its config promises.
    """
    description = blueprint_from_config(_as_tied(model), type(model).__name__, folded)
    description.check(model.state_dict())
    return description


def _as_tied(model: Any) -> Any:
    """The model's config, with its word on tied embeddings made true: transformers may load them untied regardless."""
    config = getattr(model, "config", model)
    head = model.get_output_embeddings() if hasattr(config, "tie_word_embeddings") else None
    if head is None:
        return config
    tied = head.weight is model.get_input_embeddings().weight
    if config.tie_word_embeddings != tied:
        config = copy.copy(config)
        config.tie_word_embeddings = tied
    return config


def class_head(class_name: str, family: str, heads: dict[str, str]) -> str:
    """The head of a class, one of its family's.

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
