"""The matching that advice chooses where nobody did: what ``auto`` stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from fusionlab.advice.advice import Advice, advice_on, looked_at
from fusionlab.advice.agreement import INPUTS, agreement_of
from fusionlab.advice.costs import cost_of, look_seconds
from fusionlab.advice.moved import are_moved
from fusionlab.advice.naming import of_one_naming
from fusionlab.advice.running import LEARNED
from fusionlab.advice.situations import CASES
from fusionlab.advice.tensors import Weights, folder_weights, module_weights, stored_weights
from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.card import is_twin
from fusionlab.inputs import Inputs, synthetic_ones_teach
from fusionlab.streaming import StoredModel

# In place of a preset: the one that advice on the models names.
AUTO = "auto"
# A look at inputs that would take longer is not taken; it is rough, and the models run where they are.
MOST_SECONDS = 600.0
# Synthetic inputs are not drawn for learning that would take longer; told times are a few times what it takes.
MOST_DRAWN_SECONDS = 1800.0


@dataclass(frozen=True)
class Choice:
    """A preset of matching that follows from advice on some models.

    Attributes:
        advice: on them.
        has_inputs: whether there are inputs to look at, and outputs in common to learn by.
        weights: theirs, by which the cost is told.
        may_draw: whether synthetic inputs may be learned on where there are no others.
        draws: whether they will be, which a look at the models decides.
    """

    advice: Advice
    has_inputs: bool
    weights: Sequence[Weights]
    may_draw: bool = False
    draws: bool = False

    def looking(self, models: Sequence[nn.Module], inputs: Inputs | None) -> Choice:
        """The same after a look at what the weights leave open: at inputs, labels aside, or at what to do without any.

        Args:
            models: those that it is on, in order.
            inputs: there may be none.
        """
        if self.may_draw and not self.has_inputs:
            return replace(self, draws=self._draws_well(models))
        is_open = CASES[self.advice.case].is_open and self.has_inputs and inputs is not None
        if not is_open or inputs is None or look_seconds(self.weights, INPUTS) > MOST_SECONDS:
            return self
        return replace(self, advice=looked_at(self.advice, self.weights, agreement_of(models, inputs.shared)))

    @property
    def match(self) -> str:
        """The preset; ``none`` where nothing is to be matched."""
        return self.advice.chosen(self.has_inputs or self.draws)

    @property
    def sentence(self) -> str:
        """The case, what will be done, and what it costs; before it is done."""
        if self.match == "none":
            return f"{self.advice.sentence} So nothing is matched."
        return f"{self.advice.sentence} So they are matched by {self._way}: {cost_of(self.weights, self.match)}."

    @property
    def note(self) -> str:
        """The case, what helps, and what was done; for a report."""
        done = "nothing was matched" if self.match == "none" else f"the models were matched by {self._way}"
        return f"{self.advice.note} So {done} (match: {AUTO})."

    @property
    def _way(self) -> str:
        return f"{self.match} on synthetic inputs" if self.draws and not self.has_inputs else self.match

    def _draws_well(self, models: Sequence[nn.Module]) -> bool:
        """True if learning on synthetic inputs is worth its time, which is half an hour at most."""
        is_learned = CASES[self.advice.case].is_drawn and self.advice.match == LEARNED
        is_short = is_learned and cost_of(self.weights, LEARNED).seconds <= MOST_DRAWN_SECONDS
        if not (is_short and synthetic_ones_teach(models)):
            return False
        # Fine-tunes that were brought into other bases are brought back by weights, which nothing learned betters.
        return self.advice.case != "other_seeds" or not are_moved(models)


def choose(
    models: Mapping[str, nn.Module],
    has_inputs: bool,
    stored: Mapping[str, Checkpoint] | None = None,
    inputs: Inputs | None = None,
    may_draw: bool = True,
) -> Choice:
    """A preset of matching for models that are in memory.

    Args:
        models: two or more by name.
        has_inputs: whether there are inputs to look at, labels or not.
        stored: the checkpoints that some were read from, by name.
        inputs: to look at where the weights alone leave the choice open.
        may_draw: whether synthetic inputs may be learned on where there are no others; they are where they teach, and
            where learning takes half an hour at most, roughly told.

    Raises:
        InputError: fewer than two models, or numbers that are not finite.
    """
    weights = read_weights(models, stored or {})
    choice = Choice(advice_on(weights), has_inputs, weights, may_draw)
    return choice.looking(list(models.values()), inputs)


def read_weights(models: Mapping[str, nn.Module], stored: Mapping[str, Checkpoint]) -> list[Weights]:
    """The weights of models in memory, with what their checkpoints say: whether all are adapters, and matched ones.

    Args:
        models: by name.
        stored: the checkpoints that some were read from, by name.
    """
    are_adapters = all(name in stored and stored[name].base is not None for name in models)
    weights = []
    for name, model in models.items():
        one = stored.get(name)
        if one is not None and are_adapters:
            # What they change, and of which model, whatever stands there for it.
            weights.append(stored_weights(one.source, name, one.base))
            continue
        found = module_weights(model, name)
        weights.append(found if one is None else replace(found, is_twin=is_twin(one.location)))
    return weights


def choose_stored(models: Mapping[str, StoredModel]) -> Choice:
    """A preset of matching for checkpoints, whose files are looked at a piece at a time, where there are no inputs.

    Args:
        models: two or more, by name; adapters among others are the models that they make of their base.

    Raises:
        InputError: fewer than two models, files that are missing or damaged, or numbers that are not finite.
    """
    are_adapters = all(model.base is not None for model in models.values())
    weights = of_one_naming(
        [
            stored_weights(model.source, name, model.base) if are_adapters else folder_weights(model, name)
            for name, model in models.items()
        ]
    )
    return Choice(advice_on(weights), False, weights)
