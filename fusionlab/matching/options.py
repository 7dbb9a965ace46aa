"""The options that every matching has, which say what to match, checked where they are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, get_args

from fusionlab.errors import InputError
from fusionlab.matching.solvers import Rescale
from fusionlab.matching.starts.registry import find_start
from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.blueprint import BIASES, FOLDED

BALANCED = "balanced"
GAUGES = (FOLDED, BIASES, BALANCED)
ALL = "all"
KNOWN, ANNEALED, AS_IS = "known", "annealed", "as-is"
ACTIVATIONS, GRADIENTS = "activations", "gradients"
# The start that suits the models.
AUTO = "auto"
ANCHOR, MEAN = "anchor", "mean"
TOWARDS = (ANCHOR, MEAN)
# What transformers have inside of their layers; a model of another kind may lack some.
USUAL = ("attention", "ffn")


@dataclass(frozen=True)
class Selection:
    """The options of every way of matching: which spaces, in which layers, in which gauge.

    Attributes:
        spaces: roles to match. ``attention`` stands for ``attention.qk`` and ``attention.vo``, ``all`` for
            every space of the architecture; empty matches nothing.
        layers: ``all``, or a comma-separated list of layers (``3``), ranges with both ends (``0-5``), ``first:K``
            and ``last:K``. Spaces that belong to no layer, such as the residual stream, are not affected.
        gauge: canonical forms that every model, the anchor too, is brought into before matching: ``folded`` (norm
            gains and layer scales go into the maps beside them, so that the residual stream can be rotated), ``biases``
            (key biases that softmax ignores are cleared, value biases move into the output's bias, and what is inferred
            to be an unseen mean, of what a LayerNorm reads or of a router's logits, is subtracted) and ``balanced``
            (query against key and value against output in every head; gains that a stream keeps become one); empty for
            none.
    """

    spaces: tuple[str, ...] = USUAL
    layers: str = "all"
    gauge: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for gauge in self.gauge:
            if gauge not in GAUGES:
                raise InputError(f"gauge names {gauge!r}; expected none, or some of {', '.join(GAUGES)}")

    def select(self, blueprint: Blueprint) -> tuple[Space, ...]:
        """The spaces of a blueprint that these options match.

        Raises:
            InputError: a role that the blueprint does not have, or a layer outside the model.
        """
        if self.spaces != USUAL and not blueprint.spaces:
            raise InputError(
                f"no symmetry was found in a {blueprint.architecture} model, so that there is nothing to match; its "
                f"notes (fusionlab.blueprint(model).notes) may say why, and merge without matching goes on"
            )
        for wanted in self.spaces:
            if self.spaces != USUAL and not any(_covers(wanted, role) for role in blueprint.roles()):
                known = dict.fromkeys(
                    [ALL, *(part for role in blueprint.roles() for part in (role.split(".")[0], role))]
                )
                raise InputError(
                    f"spaces names {wanted!r}; expected some of {', '.join(known)} for a {blueprint.architecture} model"
                )
        layers = parse_layers(self.layers, blueprint)
        return tuple(
            space
            for space in blueprint.spaces.values()
            if any(_covers(wanted, space.role) for wanted in self.spaces)
            and (space.layer is None or space.layer in layers)
        )


@dataclass(frozen=True)
class MatchOptions(Selection):
    """Options of the matching that brings weights closest.

    Attributes:
        rescale: ``off``, ``sequential`` (the paper's Eq. 11 and 12, after the rotation) or ``joint`` (the global
            optimum over rotation and scale) for spaces that admit a scale.
        relative: by which power of their length the parameters of every module are divided in what is minimised: 0 for
            plain distance, in which large modules outweigh the embeddings and the head; 1 for relative distance, in
            which each counts the same; 0.5 is between them.
        start: of spaces that are coupled: ``known`` (first what connects a space with tokens, pixels, positions and
            labels), ``annealed`` (all together, while a temperature falls; models that share most of their basis
            already start as they are), ``activations`` (residual streams by what the models compute on inputs),
            ``gradients`` (residual streams and hidden units permuted by correlations of that, and of gradients),
            ``as-is``, or ``auto``: ``gradients`` where the models are run to learn, predict labels, and a stream can
            only be permuted (``activations`` where they predict none), ``annealed`` everywhere else.
        temperatures: steps of annealing.
        sweeps: the most passes of block coordinate ascent over spaces that are coupled (the residual stream with
            all others), after the start; uncoupled spaces are solved once, exactly.
        towards: of more than two models, whether all are matched to one of them (``anchor``) or to the ``mean`` of all,
            so that the order they are listed in does not matter.
    """

    rescale: Rescale = "sequential"
    relative: float = 0.0
    start: str = KNOWN
    temperatures: int = 20
    sweeps: int = 50
    towards: str = ANCHOR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rescale not in get_args(Rescale):
            raise InputError(f"rescale is {self.rescale!r}; expected one of {', '.join(get_args(Rescale))}")
        refuse_numbers(self, ("relative",), ("sweeps", "temperatures"))
        if not 0 <= self.relative <= 1:
            raise InputError(f"relative is {self.relative}; expected a number from 0 to 1")
        find_start(self.start)
        if self.towards not in TOWARDS:
            raise InputError(f"towards is {self.towards!r}; expected one of {', '.join(TOWARDS)}")
        for name, count in (("sweeps", self.sweeps), ("temperatures", self.temperatures)):
            if count < 1:
                raise InputError(f"{name} is {count}; expected at least 1")
        if self.towards == MEAN and find_start(self.start).needs:
            raise InputError(
                f"start {self.start!r} does not work towards the mean; expected another start, or an anchor"
            )


def refuse_numbers(options: Any, numbers: Sequence[str], counts: Sequence[str]) -> None:
    """Refuse options of another type than numbers; None is left to the options.

    Args:
        options: a dataclass.
        numbers: names of those that are any number.
        counts: names of those that are whole ones.

    Raises:
        InputError: names the first.
    """
    for names, kind, words in ((numbers, Real, "a number"), (counts, Integral, "a whole number")):
        for name in names:
            value = getattr(options, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise InputError(f"{name} is {value!r}; expected {words}")


def describe(options: Any) -> str:
    """Every option of a dataclass with its value, for a report."""
    values = {field.name.replace("_", " "): getattr(options, field.name) for field in fields(options)}
    return "; ".join(f"{name} {_said(value)}" for name, value in values.items())


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "by default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def given(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, as `MatchOptions` has them, whether YAML, the command line or Python says them.

    Spaces and gauges may be a sequence or comma-separated text, ``none`` for an empty one; layers a number, a sequence
    of numbers or text; what YAML reads as false is the rescale ``off``. None is not given.
    """
    return {option: _plain(option, value) for option, value in changes.items() if value is not None}


def _plain(option: str, value: Any) -> Any:
    match option, value:
        case "spaces" | "gauge", _:
            items = value.split(",") if isinstance(value, str) else value
            return tuple(item.strip() for item in items if item.strip() != "none")
        case "layers", int() | str():
            return str(value)
        case "layers", _:
            return ",".join(map(str, value))
        case "rescale", False:
            return "off"
    return value


def parse_layers(text: str, blueprint: Blueprint) -> frozenset[int]:
    """The layers that a ``layers`` option means for a blueprint.

    Raises:
        InputError: not a list of layers, or layers that the model does not have.
    """
    present = sorted({space.layer for space in blueprint.spaces.values() if space.layer is not None})
    if text == "all":
        return frozenset(present)
    chosen: set[int] = set()
    for part in text.split(","):
        item = part.strip()
        word, _, count = item.partition(":")
        start, dash, end = item.partition("-")
        if word in ("first", "last") and count.isdecimal() and 1 <= int(count) <= len(present):
            chosen.update(present[: int(count)] if word == "first" else present[-int(count) :])
        elif start.isdecimal() and (end.isdecimal() or not dash):
            span = range(int(start), int(end or start) + 1)
            if not span or span[-1] > present[-1] or not set(span) <= set(present):
                raise InputError(f"layers asks for {item!r}; expected layers from {present[0]} to {present[-1]}")
            chosen.update(span)
        else:
            raise InputError(
                f"layers contains {item!r}; expected all, a layer such as 3, a range such as 0-5, "
                f"or first:K or last:K with K up to {len(present)}"
            )
    return frozenset(chosen)


def _covers(wanted: str, role: str) -> bool:
    return wanted in (ALL, role) or role.startswith(f"{wanted}.")
