"""Rough memory and time of what is advised, on two cores: from counts of numbers and rates that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusionlab.advice.tensors import Weights
from fusionlab.learning.batches import examples_at_once
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.printing import size_words

# Bytes that are read, merged and written in a second, and numbers that are matched by weights (docs/performance.md,
# benchmarks/README.md); multiplications and additions of small batches on two cores.
_MERGED, _MATCHED, _COMPUTED = 0.83 * 2**30, 5e6, 3e10
# Tokens of a text, where nothing says how many there are.
_TOKENS = 128
# Ends of the names of classes that give an answer for each token.
_BY_TOKEN = ("CausalLM", "LMHeadModel", "MaskedLM", "ConditionalGeneration", "TokenClassification")


@dataclass(frozen=True)
class Cost:
    """The memory and time of one way, rough within a factor of about three.

    Attributes:
        memory: bytes.
        seconds: on two cores, without reading data and measuring.
    """

    memory: float
    seconds: float

    def __str__(self) -> str:
        return f"about {_in_words(self.seconds)} and {size_words(self.memory)} of memory on two cores, measuring aside"


def cost_of(models: Sequence[Weights], match: str | None) -> Cost:
    """The cost of matching some models by a preset and merging them.

    Args:
        models: at least one.
        match: preset; None or ``none`` where nothing is matched.
    """
    size, numbers = max(model.size for model in models), max(model.numbers for model in models)
    count = len(models)
    merging = (count + 1) * size / _MERGED
    if match in (None, "none"):
        return Cost((count + 2) * size + 2**28, merging)
    matching = (count - 1) * numbers / _MATCHED
    if match != "learned":
        return Cost((2 * count + 1) * size + 2**28, merging + matching)
    tokens = tokens_of(models[0].config)
    named = models[0].config.get("architectures") or [""]
    examples = examples_at_once(tokens if str(named[0]).endswith(_BY_TOKEN) else 1)
    passes = RefineOptions().steps * examples * count * 6 * numbers * tokens
    return Cost((4 * count + 1) * size + 2**28, merging + matching + passes / _COMPUTED)


def look_seconds(models: Sequence[Weights], inputs: int) -> float:
    """About how many seconds it takes to run models and their mean on inputs, on two cores.

    Args:
        models: at least one.
        inputs: how many.
    """
    numbers = max(model.numbers for model in models)
    return inputs * (len(models) + 1) * numbers * tokens_of(models[0].config) / _COMPUTED


def tokens_of(config: Mapping[str, Any]) -> int:
    """The places of an input: patches of an image, by the config; a guess for texts.

    Args:
        config: of the model.
    """
    image, patch = config.get("image_size"), config.get("patch_size")
    if isinstance(image, int) and isinstance(patch, int) and patch > 0:
        return (image // patch) ** 2 + 1
    return _TOKENS


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"
