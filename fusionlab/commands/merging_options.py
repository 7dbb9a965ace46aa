"""Options that say how models are merged, and what of it methods need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jsonargparse import ArgumentParser, Namespace
from torch import nn

from fusionlab import checkpoints
from fusionlab.checkpoints import hashes
from fusionlab.checkpoints.card import Parent, parent
from fusionlab.checkpoints.hub import locate
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.dtypes import DTYPES
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method, methods
from fusionlab.merging.method import KINDS
from fusionlab.statistics import Statistics
from fusionlab.statistics.files import load


@dataclass(frozen=True)
class MergingOptions:
    """Options of merging.

    Attributes:
        method: merge method, or several with commas between them, of which the first makes the merge that is kept.
        hyperparameters: of the method, as ``--hyperparameters.NAME``; of several methods by their names. A ``density``
            is one number, or a list of one for each model, such as ``'[0.5, 0.3]'`` (of ``sce`` one number).
        base: the checkpoint that all were fine-tuned from, under any head or none, for methods that need it, and that
            LoRA adapters change; the one that these name if None.
        statistics: files of ``fusionlab gather``, of any of the models.
        weights: one for each model, scaled to sum to 1; equal ones if None.
        dtype: type that merges are written in, and are rounded to before they are tested; the widest of the end models'
            own if None.
    """

    method: str | list[str] = "simple"
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    base: str | None = None
    statistics: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    dtype: str | None = None


def add_merging(parser: ArgumentParser, listed: bool = True) -> None:
    """Add the options that say how models are merged, and in which type the merge is written.

    Args:
        parser: of a command.
        listed: whether help lists all methods, some of which import packages that take seconds.
    """
    words = told(MergingOptions, "method") + (f" Methods: {', '.join(methods())}." if listed else "")
    types = f"{told(MergingOptions, 'dtype')} Types: {', '.join(DTYPES)}."
    changes = {"method": {"help": words}, "dtype": {"help": types}}
    add_fields(parser.add_argument_group("Merging"), MergingOptions, changes=changes)


def merge_methods(arguments: Namespace) -> dict[str, dict[str, Any]]:
    """The merge methods that the arguments name, with their hyperparameters.

    Raises:
        InputError: a method or hyperparameter that does not exist, or one that is out of range or not for so many
            models.
    """
    text = arguments.method
    names = [name.strip() for name in (text.split(",") if isinstance(text, str) else text)]
    if not names:
        raise InputError("method is an empty list; expected a merge method, or several")
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"method names {twice!r} twice; expected each merge method once")
    given = arguments.hyperparameters
    if len(names) > 1:
        for name, values in given.items():
            if name not in names:
                raise InputError(f"hyperparameters names {name!r}; expected some of the methods {', '.join(names)}")
            if not isinstance(values, dict | None):
                raise InputError(f"hyperparameters of {name!r} are {values!r}; expected names and values")
    chosen = {name: dict(given if len(names) == 1 else given.get(name) or {}) for name in names}
    count = len(arguments.ckpts)
    if count > 1:  # fewer are refused where they are read, in words of their own
        for name, values in chosen.items():
            find_method(name).check(merge_weights(arguments.weights, count), values)
    return chosen


def refuse_missing(arguments: Namespace) -> None:
    """Refuse before models are read what methods of a merge would miss: inputs or statistics that no option names.

    A base model is another matter, since adapters name theirs.

    Raises:
        InputError: one of them needs what is not named.
    """
    if arguments.get("probes") is not None:
        return
    for name, values in merge_methods(arguments).items():
        method = find_method(name)
        for need in method.requires(**values):
            if need in ("score", "inputs") or (need in KINDS and not arguments.statistics):
                raise InputError(str(method.missing(need)).replace("--data or --probes", "--probes"))


def refuse_unused_statistics(arguments: Namespace) -> None:
    """Refuse statistics that no method looks at.

    Raises:
        InputError: there are some.
    """
    methods = merge_methods(arguments)
    if arguments.statistics and not any(find_method(name).kinds(**values) for name, values in methods.items()):
        given = ", ".join(arguments.statistics)
        raise InputError(
            f"statistics are given ({given}), and merge method {' and '.join(map(repr, methods))} looks at none; "
            f"expected no --statistics, or a method that does, such as regmean or fisher"
        )


def described(arguments: Namespace) -> dict[str, str]:
    """The way models are merged, in words for a model card."""
    methods = merge_methods(arguments)
    name, values = next(iter(methods.items()))
    words = {"merge method": name, "hyperparameters": ", ".join(f"{key} {value}" for key, value in values.items())}
    if arguments.weights:
        words["weights"] = ", ".join(map(str, arguments.weights))
    return {key: value for key, value in words.items() if value} | {"seed": str(arguments.seed)}


def found_by_method(notes: Sequence[str]) -> dict[str, str]:
    """All that a merge method told, in words for a model card; nothing where it told nothing.

    Args:
        notes: of the merge, a sentence each.
    """
    return {"found by the method": " ".join(notes).removesuffix(".")} if notes else {}


class Located(Protocol):
    """Anything that lies somewhere on this machine, such as a checkpoint."""

    @property
    def location(self) -> Path:
        """The file or folder."""

    @property
    def source(self) -> str:
        """The path or hub id, as it was given."""

    @property
    def base(self) -> str | None:
        """The path or hub id of the base model, of an adapter."""

    @property
    def adapter(self) -> Path | None:
        """The folder of an adapter."""


def begin_hashes(found: Mapping[str, Located], arguments: Namespace) -> None:
    """Begin to compute the hashes that the card of a merge tells, of the files as they are now."""
    base = [] if arguments.base is None else [locate(arguments.base)]
    hashes.begin([*(locate(checkpoint.source) for checkpoint in found.values()), *base])


def parents(found: Mapping[str, Located], arguments: Namespace) -> list[Parent]:
    """The parents of a merge, for its card: the end models, and the base model if there is one."""
    named = [parent(name, checkpoint.location, locate(checkpoint.source)) for name, checkpoint in found.items()]
    if arguments.base is not None:
        named.append(parent(f"{Path(arguments.base).name} (base model)", locate(arguments.base)))
    return named


def base_model(
    arguments: Namespace, found: Mapping[str, checkpoints.Checkpoint], module: nn.Module | None = None
) -> nn.Module | None:
    """The base model that the arguments name, or that all end models are adapters of where a method needs one.

    Args:
        arguments: of the command.
        found: the end models.
        module: of which the base model is a state dict, if it is.
    """
    needed = any("base" in find_method(name).requires(**values) for name, values in merge_methods(arguments).items())
    path = base_path(arguments, found, needed)
    return None if path is None else checkpoints.read(path, module if path == arguments.base else None).model


def base_path(arguments: Namespace, found: Mapping[str, Located], needed: bool) -> str | None:
    """The path or hub id of the base model that the arguments name, or that all end models are adapters of.

    Args:
        arguments: of the command.
        found: the end models.
        needed: a method looks at it; what end models name is of no use else.
    """
    if arguments.base is not None:
        return str(arguments.base)
    (base, *others) = {model.base for model in found.values()}
    return base if needed and not others else None


def given_statistics(arguments: Namespace) -> list[Mapping[str, Statistics]]:
    """The statistics in the files that the arguments name.

    Raises:
        InputError: a file that holds none.
    """
    return [load(path) for path in arguments.statistics or []]
