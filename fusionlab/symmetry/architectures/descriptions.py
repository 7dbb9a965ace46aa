"""Blueprints written down by hand, each by a function of the model's config."""

import copy
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from packaging.version import Version
from torch import nn

from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder

Describe = Callable[[BlueprintBuilder, Any, str], None]
# Model classes rename their parameters now and then: from which version on, and before which, they are as described.
SUPPORTED_VERSIONS = {"transformers": ("5.17", "6"), "timm": ("1.0.31", "2")}


class Descriptions:
    """Functions that describe architectures, by the names of these."""

    def __init__(self) -> None:
        self._known: dict[str, Describe] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is described, sorted."""
        return tuple(sorted(self._known))

    def of(self, *names: str) -> Callable[[Describe], Describe]:
        """Register a function ``(builder, config, class name)`` under model types or ``package.Class`` names.

        It writes the blueprint down on the builder; ``builder.folded`` matters only to the builder's own methods.

        For a model without a config object (timm, torch) the model itself is handed over as its own config; only its
        attributes may be read, never its parameters.
        """

        def register(describe: Describe) -> Describe:
            self._known.update(dict.fromkeys(names, describe))
            return describe

        return register

    def blueprint(self, model: nn.Module, folded: bool = False) -> Blueprint:
        """The blueprint of a model: its spaces, the axes of its parameters, and what they do not cover.

        Args:
            model: a transformers, timm or torch model.
            folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

        Raises:
            SymmetryError: the model is not described, or its parameters are not those that its config promises.
        """
        description = self.blueprint_from_config(_as_tied(model), type(model).__name__, folded)
        description.check(model.state_dict())
        return description

    def blueprint_from_config(self, config: Any, class_name: str, folded: bool = False) -> Blueprint:
        """The blueprint of a model class from its config alone.

        Args:
            config: a transformers config (anything with ``model_type``), or a timm or torch module.
            class_name: the model's class, ``TransformerEncoder`` for instance; it decides which head and which
                prefix the parameter names have.
            folded: describe the model as `fusionlab.symmetry.folding.fold` leaves it.

        Raises:
            SymmetryError: the architecture or the class is not described.
        """
        name = architecture_name(config, class_name)
        if name not in self._known:
            raise SymmetryError(f"no description of the architecture {name!r}: there are those of {self.names}")
        _refuse_other_versions(type(config).__module__.split(".")[0])
        describe = self._known[name]
        builders = BlueprintBuilder(name), BlueprintBuilder(name, folded=True)
        for builder in builders:
            describe(builder, config, class_name)
        as_is, after = (builder.build().found_in(f"written in {_file_of(describe)}") for builder in builders)
        if not (as_is.norms or as_is.layer_scales or as_is.centred):
            return as_is
        return after if folded else replace(as_is, after_folding=after)


DESCRIBED = Descriptions()
"""The descriptions that are used in place of inference."""


def architecture_name(config: Any, class_name: str) -> str:
    """The config's ``model_type``, or ``package.Class`` where a module stands in for one."""
    return getattr(config, "model_type", None) or f"{type(config).__module__.split('.')[0]}.{class_name}"


def class_head(class_name: str, family: str, heads: dict[str, str]) -> str:
    """The head of a class, one of its family's.

    Args:
        class_name: such as ``VisionTransformerDistilled``.
        family: the class names' common beginning, such as ``VisionTransformer``.
        heads: what may follow it (``Model``, ``ForImageClassification``), each with the caller's name for it.

    Raises:
        SymmetryError: a class that is not listed.
    """
    if not class_name.startswith(family) or class_name.removeprefix(family) not in heads:
        known = ", ".join(family + ending for ending in heads)
        raise SymmetryError(f"no description of the model class {class_name}: fusionlab knows {known}")
    return heads[class_name.removeprefix(family)]


def _file_of(describe: Describe) -> str:
    """The file that a description is written in, such as ``symmetry/architectures/timm_vit.py``."""
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


def _as_tied(model: Any) -> Any:
    """The model's config, with its word on tied embeddings made true: transformers may load them untied regardless."""
    config = getattr(model, "config", model)
    head = model.get_output_embeddings() if hasattr(config, "tie_word_embeddings") else None
    weight = getattr(head, "weight", None)
    if weight is None:
        return config
    tied = weight is model.get_input_embeddings().weight
    if config.tie_word_embeddings != tied:
        config = copy.copy(config)
        config.tie_word_embeddings = tied
    return config
