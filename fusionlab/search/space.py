"""The settings that a search may change, in which range, and those of a merge that a point of it stands for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method
from fusionlab.merging.by_parameter import WEIGHTS as BY_LAYER
from fusionlab.search.bands import Band, bands
from fusionlab.search.options import SearchOptions
from fusionlab.suggestions import did_you_mean

WEIGHTS = "weights"
# Of a method of two models, where it is given: the second model's weight, whatever the weights are.
POSITION = "t"
# Ranges of hyperparameters by their names, which mean the same in all methods that have them; weights are relative to
# one another, and searched by their logarithms.
RANGES: dict[str, tuple[float, float]] = {
    "lambda_": (0.1, 3.0),
    "density": (0.05, 1.0),
    "alpha": (0.0, 1.0),
    "ratio": (0.02, 0.5),
    "common": (0.2, 1.0),
    "threshold": (0.1, 0.8),
    "t": (0.0, 1.0),
    WEIGHTS: (0.2, 5.0),
}
Value = float | int | str | bool


@dataclass(frozen=True)
class Axis:
    """One number or word that is searched.

    Attributes:
        name: of the hyperparameter, with the model and the group of layers where there are several.
        setting: the hyperparameter, or ``weights``.
        given: its value at the start; None where that is no single value.
        low: the lowest number; None for words.
        high: the highest number.
        words: instead of numbers.
        is_log: whether numbers are drawn by their logarithm.
        is_whole: whether they are whole.
        model: place of the model whose weight it is.
        band: place of the group of layers; None for all of the model.
    """

    name: str
    setting: str
    given: Value | None
    low: float = 0.0
    high: float = 0.0
    words: tuple[Value, ...] = ()
    is_log: bool = False
    is_whole: bool = False
    model: int | None = None
    band: int | None = None


@dataclass(frozen=True)
class Settings:
    """Settings of a merge.

    Attributes:
        hyperparameters: of the method; by patterns of names where groups of layers differ.
        weights: one for each model, summing to 1.
    """

    hyperparameters: dict[str, Any]
    weights: list[float]

    def shares(self) -> list[float]:
        """The share of each model in the merge: its weight, or what a position between two models leaves of it.

        Raises:
            InputError: they differ from parameter to parameter.
        """
        for name in (BY_LAYER, POSITION):
            if isinstance(self.hyperparameters.get(name), Mapping):
                raise InputError(
                    f"{name} differs from parameter to parameter, and a correction of activations takes one weight "
                    f"for each model; expected one of them alone"
                )
        return self.usual_shares

    @property
    def usual_shares(self) -> list[float]:
        """The same, the weights where they differ from parameter to parameter."""
        position = self.hyperparameters.get(POSITION)
        return self.weights if position is None or isinstance(position, Mapping) else [1 - position, position]


@dataclass(frozen=True)
class Space:
    """The settings that a search goes through.

    Attributes:
        method: the merge method.
        given: the settings to start from, as they were given.
        fixed: hyperparameters that are not searched.
        weights: of the models where they are not searched.
        axes: what is searched.
        bands: groups of layers; empty where all layers are treated alike.
    """

    method: str
    given: Settings
    fixed: Mapping[str, Any]
    weights: Sequence[float]
    axes: tuple[Axis, ...]
    bands: tuple[Band, ...] = field(default=())

    @staticmethod
    def of(
        method: str,
        count: int,
        options: SearchOptions,
        given: Mapping[str, Any] | None = None,
        weights: Sequence[float] | None = None,
        names: Sequence[str] = (),
    ) -> Space:
        """The space of a merge method.

        Args:
            method: its name.
            count: how many models are merged.
            options: say what is searched.
            given: hyperparameters to start from; the method's own if None. One that is given and that ``over`` does not
                name stays as it is.
            weights: to start from; equal ones if None.
            names: of the models' parameters, to find layers by.

        Raises:
            InputError: something to search that the method does not have, a range that is none, nothing to search, or
                groups of layers of a method that takes one value for the whole model.
        """
        chosen, kept = find_method(method), dict(given or {})
        start = chosen.hyperparameters | kept
        over = options.over
        if over is None:
            over = {name: None for name in (*chosen.hyperparameters, WEIGHTS) if name in RANGES and name not in kept}
            if kept.get(POSITION) is not None or POSITION in over or BY_LAYER in kept:
                over.pop(WEIGHTS, None)  # which would do nothing
        for name in over:
            if name not in chosen.hyperparameters and name != WEIGHTS:
                known = (*chosen.hyperparameters, WEIGHTS)
                raise InputError(
                    f"search over names {name!r}, which {method!r} does not have; expected some of {', '.join(known)}"
                    f"{did_you_mean(name, known)}"
                )
        if not over:
            raise InputError(f"search has nothing to look for in {method!r}; expected over to name hyperparameters")
        if WEIGHTS in over:
            _refuse_weights([*kept, *over])
        groups = _groups(options, method, names)
        if POSITION in over and start[POSITION] is None and BY_LAYER not in kept and count == 2:
            start[POSITION] = merge_weights(weights, count)[1]
            weights = None
        shares = [share * count for share in merge_weights(weights, count)]
        kinds = {**get_type_hints(chosen.function), WEIGHTS: float}
        axes: list[Axis] = []
        for name, wanted in over.items():
            models = range(count) if name == WEIGHTS else [None]
            differs = [] if chosen.is_of_whole(BY_LAYER if name == WEIGHTS else name) else groups
            for band in range(len(differs)) if differs else [None]:
                for model in models:
                    words = [] if model is None else [f"model {model}"]
                    words += [] if band is None else [groups[band].name]
                    label = f"{name} ({', '.join(words)})" if words else name
                    value = start[name] if model is None else shares[model]
                    axes.append(_axis(label, name, value, wanted, kinds.get(name), model, band))
        fixed = {name: value for name, value in kept.items() if name not in over}
        named = {name: start[name] for name in over if name != WEIGHTS and start[name] is not None}
        as_given = Settings({**fixed, **named}, merge_weights(weights, count))
        return Space(method, as_given, fixed, merge_weights(weights, count), tuple(axes), tuple(groups))

    def settings(self, values: Mapping[str, Value]) -> Settings:
        """The settings of a point.

        Args:
            values: by the names of the axes.
        """
        found, weights = dict(self.fixed), list(self.weights)
        shares: dict[int | None, list[float]] = {}
        for axis in self.axes:
            value = values[axis.name]
            if axis.setting == WEIGHTS:
                shares.setdefault(axis.band, []).append(float(value))
            elif axis.band is None:
                found[axis.setting] = value
            else:
                patterns = self.bands[axis.band].patterns
                found[axis.setting] = {**found.get(axis.setting, {}), **dict.fromkeys(patterns, value)}
        for band, each in shares.items():
            if band is None:
                weights = merge_weights(each, len(weights))
            else:
                patterns = self.bands[band].patterns
                of_band = dict.fromkeys(patterns, merge_weights(each, len(weights)))
                found[BY_LAYER] = {**found.get(BY_LAYER, {}), **of_band}
        return Settings(found, weights)

    def start(self) -> dict[str, Value]:
        """The point that stands for the settings as they were given, of what has a single value there."""
        return {axis.name: axis.given for axis in self.axes if axis.given is not None}

    @property
    def has_start(self) -> bool:
        """True if the settings as they were given are a point of the space: in the ranges, and none by patterns."""
        point = self.start()
        return len(point) == len(self.axes) and self.holds(point)

    def holds(self, point: Mapping[str, Value]) -> bool:
        """True if all values of a point are in their ranges."""
        return all(
            point[axis.name] in axis.words if axis.words else axis.low <= float(point[axis.name]) <= axis.high
            for axis in self.axes
        )


def _groups(options: SearchOptions, method: str, names: Sequence[str]) -> list[Band]:
    if options.layers == 1:
        return []
    if find_method(method).unit == "model":
        raise InputError(
            f"search layers is {options.layers}, and {method!r} takes one value for the whole model; expected 1, or a "
            f"method that sees no more than a parameter at a time"
        )
    return bands(names, options.layers)


def _refuse_weights(names: Sequence[str]) -> None:
    """Refuse to search the models' weights where something else stands in their place."""
    if BY_LAYER in names:
        raise InputError(
            f"search over names weights, and {BY_LAYER} are given, in whose place weights do nothing; expected one of "
            f"them alone"
        )
    if POSITION in names:
        raise InputError(
            f"search over names weights beside {POSITION}, which stands in their place; expected one of them alone"
        )


def _axis(label: str, name: str, given: Any, wanted: Any, kind: Any, model: int | None, band: int | None) -> Axis:
    """One axis: over a known range, a given one, or words.

    Args:
        label: its name.
        name: of the hyperparameter, or ``weights``.
        given: value at the start.
        wanted: the range or the words; None for the known range.
        kind: type hint of the values.
        model: see `Axis`.
        band: see `Axis`.
    """
    if wanted is None:
        if name not in RANGES:
            raise InputError(f"search knows no range of {name!r}; expected over to give it, as [lowest, highest]")
        wanted = RANGES[name]
    values = list(wanted) if isinstance(wanted, list | tuple) else []
    place: dict[str, Any] = {"model": model, "band": band}
    if values and all(isinstance(value, str | bool) for value in values):
        if set(get_args(kind) or (kind,)) - {type(None)} <= {int, float, Sequence[float]}:
            raise InputError(f"search over {name} is {wanted!r}, and {name} is a number; expected [lowest, highest]")
        return Axis(label, name, given if isinstance(given, str | bool) else None, words=tuple(values), **place)
    if len(values) != 2 or not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise InputError(f"search over {name} is {wanted!r}; expected [lowest, highest], or a list of words")
    low, high = values
    if kind is int and not all(float(value).is_integer() for value in values):
        raise InputError(f"search over {name} is {wanted!r}, and {name} is a whole number; expected whole ones")
    if low >= high or (name == WEIGHTS and low <= 0):
        least = "numbers above 0, the lower first" if name == WEIGHTS else "the lower number first"
        raise InputError(f"search over {name} is {wanted!r}; expected {least}")
    if not isinstance(given, int | float):  # by patterns, or told by the method itself
        given = None
    return Axis(label, name, given, low, high, is_log=name == WEIGHTS, is_whole=kind is int, **place)
