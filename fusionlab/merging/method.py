"""A merge method: what it needs, what it refuses, and the one way to call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_type_hints

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging.by_parameter import WEIGHTS, by_pattern, check_patterns, groups
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.kinds import check_kind
from fusionlab.statistics import Activations, Fisher, Grams
from fusionlab.suggestions import did_you_mean
from fusionlab.types import State

# Of a generator, merged parameters, some at a time.
Merger = Callable[..., dict[str, Tensor] | Iterator[dict[str, Tensor]]]
Needs = Sequence[str] | Callable[..., Sequence[str]]
# What a method may be given at a time: pieces of flattened parameters, single parameters, or whole models only.
Unit = Literal["number", "parameter", "model"]
# Numbers in memory for each number of a parameter: so many, and so many more for each model; or all of them, by the
# parameter's shape and the number of models.
Holds = tuple[int, int] | Callable[[Sequence[int], int], float]
# Names of parameters that must be merged at once, of all that is known beside the models' numbers.
Together = Callable[[Ingredients], Sequence[Sequence[str]]]
# Needs that are gathered from data, and may lie in files.
KINDS = tuple(kind.kind for kind in (Grams, Fisher, Activations))
# Needs that are known of models which lie in files too.
KNOWN = ("blueprint", *KINDS)
# Of a method that does not say how much memory it takes; see `MergeMethod.holds`.
HOLDS = (20, 3)
_STATISTICS = "expected data (--data or --probes), or statistics that `fusionlab gather` wrote (--statistics)"
# What a method may need beside states and weights, and how to ask for it.
NEEDS = {
    "gram": f"Gram matrices of each model; {_STATISTICS}",
    "fisher": f"the Fisher information of each model; {_STATISTICS}",
    "activations": "activations of each model; expected data, the same for all (--data or --probes)",
    "base": "the base model that all were fine-tuned from; expected one (--base)",
    "score": "a validation set to choose by; expected data with a validation split, or rows held out for it (val_size)",
    "inputs": "inputs of each model, on which it is run; expected data (--data or --probes; statistics do not do)",
    "blueprint": "a description of the architecture; expected models of a supported one",
}


@dataclass(frozen=True)
class MergeMethod:
    """A registered merge method.

    Attributes:
        name: in options and tables.
        function: ``f(ingredients, **hyperparameters) -> state``; or a generator of parts of the state, in an order of
            its own, each parameter once, of a method some of whose parameters depend on what became of those before.
            Where models lie in files it is given states that read a parameter each time that it is asked for.
        needs: some of `NEEDS`, or what gives them for given hyperparameters.
        unit: the least that the method may be given at a time: ``number`` where each number of a merge depends on those
            in its place in the models alone; ``parameter`` where it depends on that parameter; ``model`` on anything.
        survey: ``f(survey, **hyperparameters)``, which looks at all parameters before any is merged; what it returns is
            `surveyed` of the ingredients. What it names has one value for the whole model; so have weights where it
            names ``layer_weights``, which it is never given. Of a method with the unit ``model`` the survey is a
            `WholeSurvey`, of tensors that may have no numbers (on the meta device).
        refuse: ``f(weights, **hyperparameters)``, which raises `InputError` for numbers that are out of range, and for
            so many models of these weights; it is called before any work.
        holds: of a method that is given parameters or parts, how many numbers of 4 bytes merging one holds in memory at
            most for each of its numbers: so many, and so many more for each model, which is among them; or a function
            that gives all of them for a parameter's shape and a number of models. Of a method that is of whole models
            (`is_of_models`) so many models, and so many more for each, beside a base model.
        together: of a method with the unit ``model`` that needs no more than `KNOWN`, a function that gives the
            parameters that depend on each other, so that all others may be merged one by one, in any order. It is given
            ingredients without states, and what the survey found.
    """

    name: str
    function: Merger
    needs: Needs = ()
    unit: Unit = "model"
    survey: Callable[..., Any] | None = None
    refuse: Callable[..., None] | None = None
    holds: Holds = HOLDS
    together: Together | None = None

    @property
    def is_of_models(self) -> bool:
        """True if it is never merged from files, as it runs models."""
        return self.unit == "model" and self.together is None and not self.flows

    @property
    def flows(self) -> bool:
        """True if its function is a generator."""
        return inspect.isgeneratorfunction(self.function)

    def by_parts(self, **hyperparameters: Any) -> bool:
        """True if files are merged a part at a time by this method, where all is known that it needs.

        Raises:
            InputError: see `requires`.
        """
        needs = set(self.requires(**hyperparameters))
        return (self.together is not None or self.flows) and needs <= set(KNOWN)

    def kinds(self, **hyperparameters: Any) -> tuple[str, ...]:
        """The statistics that it needs of each model: some of `KINDS`.

        Raises:
            InputError: see `requires`.
        """
        return tuple(need for need in self.requires(**hyperparameters) if need in KINDS)

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
                    f"{did_you_mean(name, known)}"
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

    def is_of_whole(self, name: str) -> bool:
        """True if a hyperparameter has one value for the whole model, and no others by patterns of parameter names."""
        surveyed = self.survey is not None and name in inspect.signature(self.survey).parameters
        return self.unit == "model" or surveyed

    def _check_can_differ(self, name: str, values: Mapping[str, Any]) -> None:
        """Refuse a mapping from patterns to values where the method needs one value for all parameters."""
        if self.is_of_whole(name) or not values:
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

    def check(
        self,
        weights: Sequence[float],
        hyperparameters: Mapping[str, Any],
        names: Sequence[str] | None = None,
        tied: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse whatever of its settings the method would refuse in a merge, before any work.

        Args:
            weights: one for each model, summing to 1.
            hyperparameters: the method's own, as `merge` takes them.
            names: of all parameters; None where they are not known yet, so that of hyperparameters by patterns nothing
                but types and counts is looked at.
            tied: further names of tied parameters, and the one that each is merged by.

        Raises:
            InputError: a hyperparameter that it does not have, of another type, out of range or not for so many models,
                another number of weights than models, or a pattern that matches no parameter.
        """
        self.requires(**hyperparameters)
        patterns = {} if WEIGHTS in self.hyperparameters else hyperparameters.get(WEIGHTS, {})
        for pattern, each in patterns.items():
            merge_weights(each, len(weights), f"{WEIGHTS} for {pattern!r}")
        if names is not None:
            check_patterns(names, hyperparameters, tied or {})
        elif by_pattern(hyperparameters):
            return
        if self.refuse is None:
            return
        merged = [name for name in names or ["any"] if name not in (tied or {})]
        for _, values in groups(merged, hyperparameters):
            own = values.pop(WEIGHTS, None)
            self.refuse(weights if own is None else merge_weights(own, len(weights)), **(self.hyperparameters | values))

    def surveyed(self, given: Ingredients, states: Sequence[State], **hyperparameters: Any) -> Ingredients:
        """Ingredients with what the survey of whole models found, where there is one.

        Args:
            given: all but the states.
            states: of the models; they may have no numbers.
            hyperparameters: the method's own.
        """
        if self.survey is None:
            return given
        found = self.survey(WholeSurvey(replace(given, states=states)), **(self.hyperparameters | hyperparameters))
        return replace(given, surveyed=found)

    def merge(self, ingredients: Ingredients, **hyperparameters: Any) -> dict[str, Tensor]:
        """The merged state.

        Args:
            ingredients: what the method may look at.
            hyperparameters: the method's own; any of a method that sees no more than a parameter at a time may be a
                mapping from patterns of names to values, and so may ``layer_weights``, to a weight for each model. All
                that `check` accepts.

        Raises:
            InputError: what the method refuses of the models.
        """
        if not by_pattern(hyperparameters):
            return self._whole(self.function(ingredients, **hyperparameters), ingredients)
        merged: dict[str, Tensor] = {}
        for names, values in groups(ingredients.states[0], hyperparameters):
            weights = values.pop(WEIGHTS, None)
            part = ingredients.only(names)
            if weights is not None:
                part = replace(part, weights=merge_weights(weights, len(part.states)))
            merged |= self._whole(self.function(part, **values), part)
        return {name: merged[name] for name in ingredients.states[0]}

    def parts(self, ingredients: Ingredients, **hyperparameters: Any) -> Iterator[dict[str, Tensor]]:
        """The parameters of the merged state as they are found, some at a time, of a method that `flows`.

        Args:
            ingredients: see `merge`, like what follows.
            hyperparameters: the method's own.

        Raises:
            InputError: see there.
        """
        found = self.function(ingredients, **hyperparameters)
        assert not isinstance(found, dict)
        yield from found

    @staticmethod
    def _whole(found: dict[str, Tensor] | Iterator[dict[str, Tensor]], ingredients: Ingredients) -> dict[str, Tensor]:
        """All that a function gave."""
        if isinstance(found, dict):
            return found
        merged = {name: tensor for part in found for name, tensor in part.items()}
        return {name: merged[name] for name in ingredients.states[0]}
