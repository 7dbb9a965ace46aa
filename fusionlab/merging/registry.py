"""The registry that every merge method joins, and the one way to call it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import torch
from torch import Tensor

from fusionlab.batch_norm import running_statistics
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging.by_parameter import WEIGHTS, by_pattern, check_patterns, groups, weights_alone
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.kinds import check_kind, is_plain
from fusionlab.registration import first_parameters
from fusionlab.statistics import Statistics
from fusionlab.suggestions import did_you_mean
from fusionlab.types import State

if TYPE_CHECKING:  # takes as long to import as all that a merge of two small models does
    from fusionlab.symmetry import Blueprint

Merger = Callable[..., dict[str, Tensor]]
Needs = Sequence[str] | Callable[..., Sequence[str]]
# What a method may be given at a time: pieces of flattened parameters, single parameters, or whole models only.
Unit = Literal["number", "parameter", "model"]
# What a method may need beside states and weights, and how to ask for it.
NEEDS = {
    "gram": "Gram matrices of each model; expected data, or statistics that `fusionlab gather` wrote",
    "fisher": "the Fisher information of each model; expected data, or statistics that `fusionlab gather` wrote",
    "activations": "activations of each model; expected data, the same for all",
    "base": "the base model that all were fine-tuned from; expected one",
    "score": "a validation set to choose by; expected data",
    "blueprint": "a description of the architecture; expected models of a supported one",
}


@dataclass(frozen=True)
class MergeMethod:
    """A registered merge method.

    Attributes:
        name: in options and tables.
        function: ``f(ingredients, **hyperparameters) -> state``.
        needs: some of `NEEDS`, or what gives them for given hyperparameters.
        unit: the least that the method may be given at a time: ``number`` where each number of a merge depends on those
            in its place in the models alone; ``parameter`` where it depends on that parameter; ``model`` on anything.
        survey: ``f(survey, **hyperparameters)``, which looks at all parameters before any is merged; what it returns is
            `surveyed` of the ingredients.
    """

    name: str
    function: Merger
    needs: Needs = ()
    unit: Unit = "model"
    survey: Callable[..., Any] | None = None

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Every hyperparameter's name and default."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def missing(self, need: str) -> InputError:
        """The sentence that asks for one of `NEEDS`, where it was not given."""
        return InputError(f"merge method {self.name!r} needs {NEEDS[need]}")

    def requires(self, **hyperparameters: Any) -> tuple[str, ...]:
        """The needs of the method with these hyperparameters: some of `NEEDS`.

        Raises:
            InputError: a hyperparameter that it does not have, or a value of another type than the hyperparameter's.
        """
        known = self.hyperparameters
        own = {name: value for name, value in hyperparameters.items() if name != WEIGHTS or name in known}
        for name in own:
            if name not in known:
                raise InputError(
                    f"merge method {self.name!r} has no hyperparameter {name!r}; expected {', '.join(known) or 'none'}"
                )
        kinds = get_type_hints(self.function)
        patterns = by_pattern(hyperparameters)
        for name, values in patterns.items():
            self._check_can_differ(name, values)
            if odd := [pattern for pattern in values if not isinstance(pattern, str)]:
                raise InputError(f"{name} has the pattern {odd[0]!r}; expected text, such as '*{odd[0]}*'")
        for name, value in own.items():
            by_name = {f"{name} for {pattern!r}": each for pattern, each in patterns.get(name, {}).items()}
            for words, each in (by_name if name in patterns else {name: value}).items():
                check_kind(words, each, kinds.get(name, Any))
        if WEIGHTS in hyperparameters and WEIGHTS not in known:
            self._check_weights(hyperparameters[WEIGHTS])
        return tuple(self.needs(**(known | own)) if callable(self.needs) else self.needs)

    def _check_can_differ(self, name: str, values: Mapping[str, Any]) -> None:
        """Refuse a mapping from patterns to values where the method needs one value for all parameters."""
        surveyed = self.survey is not None and name in inspect.signature(self.survey).parameters
        if self.unit == "model" or surveyed or not values:
            reason = "patterns of names and values" if not values else "one value for the whole model"
            raise InputError(f"{name} is {dict(values)!r}; expected {reason}, for merge method {self.name!r}")

    def _check_weights(self, values: object) -> None:
        """Refuse weights by parameter that are no mapping from patterns to numbers for the models."""
        patterns = values if isinstance(values, Mapping) else {}
        if not patterns or not all(
            isinstance(each, Sequence) and not isinstance(each, str) for each in patterns.values()
        ):
            raise InputError(f"{WEIGHTS} is {values!r}; expected patterns of names, and for each a list of weights")
        for pattern, each in patterns.items():
            for weight in each:
                check_kind(f"{WEIGHTS} for {pattern!r}", weight, float)

    def merge(self, ingredients: Ingredients, **hyperparameters: Any) -> dict[str, Tensor]:
        """The merged state.

        Args:
            ingredients: what the method may look at.
            hyperparameters: the method's own; any of a method that sees no more than a parameter at a time may be a
                mapping from patterns of names to values, and so may ``layer_weights``, to a weight for each model.

        Raises:
            InputError: what the method refuses, or another number of weights than models.
        """
        if not by_pattern(hyperparameters):
            return self.function(ingredients, **hyperparameters)
        merged: dict[str, Tensor] = {}
        for names, values in groups(ingredients.states[0], hyperparameters):
            weights = values.pop(WEIGHTS, None)
            part = ingredients.only(names)
            if weights is not None:
                part = replace(part, weights=merge_weights(weights, len(part.states), f"{WEIGHTS} for {names[0]!r}"))
            merged |= self.function(part, **values)
        return {name: merged[name] for name in ingredients.states[0]}


METHODS: dict[str, MergeMethod] = {}


def merge_method(
    name: str, needs: Needs = (), unit: Unit = "model", survey: Callable[..., Any] | None = None
) -> Callable[[Merger], Merger]:
    """Register ``f(ingredients, **hyperparameters) -> state`` as a merge method.

    Args:
        name: in options and tables.
        needs: some of `NEEDS`; or a function that takes the hyperparameters by keyword and returns them.
        unit: see `MergeMethod`, like `survey`.
        survey: what is looked at of all parameters first.

    Raises:
        TypeError: a function of another signature, a hyperparameter without default or of a type that cannot be
            written in a config, or a need that there is not.
    """

    def register(function: Merger) -> Merger:
        what = "the merge method"
        first_parameters(function, ("ingredients",), what)
        hints = get_type_hints(function)
        for parameter in list(inspect.signature(function).parameters)[1:]:
            if not is_plain(hints.get(parameter)):
                raise TypeError(
                    f"{what} {name!r} has a hyperparameter {parameter!r} of {hints.get(parameter, 'no type')}; "
                    f"expected float, int, bool or a Literal, or one of these or None"
                )
        if unknown := [] if callable(needs) else [need for need in needs if need not in NEEDS]:
            raise TypeError(f"{what} {name!r} needs {unknown[0]!r}; expected some of {', '.join(NEEDS)}")
        METHODS[name] = MergeMethod(name, function, needs, unit, survey)
        return function

    return register


def methods() -> tuple[str, ...]:
    """The names of all merge methods."""
    _import_all()
    return tuple(sorted(METHODS))


def _import_all() -> None:
    """Import every file beside this one, where methods register themselves."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def find_method(name: str) -> MergeMethod:
    """A merge method by name.

    Raises:
        InputError: there is none.
    """
    if name not in METHODS and name.isidentifier():
        # Most methods are alone in a file of their name, and some others import packages that take seconds.
        try:
            importlib.import_module(f"{__package__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__package__}.{name}":
                raise
    if name not in METHODS and name not in methods():
        raise InputError(
            f"merge method {name!r} does not exist; expected one of {', '.join(methods())}"
            f"{did_you_mean(name, methods())}"
        )
    return METHODS[name]


@torch.no_grad()
def merge_states(
    states: Sequence[State],
    method: str = "simple",
    weights: Sequence[float] | None = None,
    *,
    blueprint: Blueprint | None = None,
    statistics: Sequence[Mapping[str, Statistics]] = (),
    base: State | None = None,
    score: Callable[[State], float] | None = None,
    seed: int = 0,
    **hyperparameters: Any,
) -> dict[str, Tensor]:
    """Merge models that share one basis.

    Methods with task vectors average running statistics of BatchNorm; see `fusionlab.batch_norm.remeasure` for
    what to do about those of any merge.

    Args:
        states: parameters and buffers by name, the same names and shapes in each; not modified.
        method: one of `methods`.
        weights: one for each model, scaled to sum to 1; equal if None.
        blueprint: see `Ingredients`, like all that follows.
        statistics: for each model, by kind.
        base: the model that all were fine-tuned from.
        score: how good a merged state is, higher is better.
        seed: of anything random.
        hyperparameters: the method's own; see `MergeMethod.merge`.

    Raises:
        InputError: an unknown method or hyperparameter, too few models, models that do not fit each other, or
            something that the method needs is missing or belongs to another model.
    """
    chosen = find_method(method)
    needs = chosen.requires(**hyperparameters)
    if len(states) < 2:
        raise InputError(f"merging was given {len(states)} model; expected at least two")
    _check_alike(states if base is None else [*states, base])
    given = {"base": base, "score": score, "blueprint": blueprint}
    for need in needs:
        if given.get(need) is None and not (statistics and all(need in found for found in statistics)):
            raise chosen.missing(need)
    for index, (found, state) in enumerate(zip(statistics, states, strict=False)):
        for need in needs:
            if need in found:
                found[need].check(state, f"model {index}")
    ingredients = Ingredients(states, merge_weights(weights, len(states)), blueprint, statistics, base, score, seed)
    # A tied parameter is merged once, but by methods that go by layers or look at a whole state.
    once = chosen.unit != "model" or set(needs) <= {"base"}
    tied = _tied(states if base is None else [*states, base]) if once else {}
    check_patterns(states[0], hyperparameters, tied)
    # A variance is measured, not learned: with a task vector added it may be negative.
    measured = running_statistics(states[0]) if "base" in needs else []
    averaged = ingredients.only(measured)
    ingredients = ingredients.without({*tied, *measured})
    if chosen.survey is not None:
        found = chosen.survey(WholeSurvey(ingredients), **(chosen.hyperparameters | hyperparameters))
        ingredients = replace(ingredients, surveyed=found)
    merged = chosen.merge(ingredients, **hyperparameters)
    if measured:
        merged |= find_method("simple").merge(averaged, **weights_alone(hyperparameters))
    return {name: merged[tied.get(name, name)] for name in states[0]}


def _tied(states: Sequence[State]) -> dict[str, str]:
    """Further names of parameters that are tied in all of several models, and the first name of each."""
    from fusionlab.models import aliases  # noqa: PLC0415 - imports what a merge of files does without

    first, *others = [aliases(state) for state in states]
    return {name: known for name, known in first.items() if all(other.get(name) == known for other in others)}


def _check_alike(states: Sequence[State]) -> None:
    first = states[0]
    for index, state in enumerate(states[1:], start=1):
        if odd := sorted(set(first) ^ set(state)):
            where = f"model {index}" if odd[0] in state else "the first model"
            raise InputError(f"only {where} has the parameter {odd[0]!r}; expected the same parameters in all models")
        for name in first:
            if first[name].shape != state[name].shape:
                shapes = " and ".join("x".join(map(str, s[name].shape)) or "scalar" for s in (first, state))
                raise InputError(f"parameter {name!r} has shapes {shapes} in models 0 and {index}; expected one shape")
