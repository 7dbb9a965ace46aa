"""One measured number, and the names of what it can be."""

from dataclasses import dataclass
from typing import Literal

Domain = Literal["in", "out"] | None

END_MODEL = "end model"
ENSEMBLE = "ensemble"
MULTITASK = "multi-task"
# What is measured beside merges, to compare them with.
REFERENCES = (END_MODEL, ENSEMBLE, MULTITASK)
NO_METHOD = "-"
NO_MATCHING = "-"
UNMATCHED = "none"


@dataclass(frozen=True)
class Row:
    """One number: one metric of one end model or of one merge.

    Args:
        models: names of the models that went in; the one name for an end model alone.
        method: merging method such as ``"simple"``; ``"end model"`` for an end model alone, ``"ensemble"`` for the
            mean of their outputs, ``"multi-task"`` for a model trained on everything.
        matching: ``"none"`` for an unmatched merge, else the matching's name such as ``"paper"``;
            ``"-"`` for anything that is no merge.
        data_set: the evaluated data set, or None where no data is involved.
        domain: ``"in"`` if the end models were trained on this data set (or a part of it), ``"out"`` if not.
        metric: ``"accuracy"``, ``"loss"``, ...; accuracy and its like are fractions from 0 to 1.
        value: the number itself.
        seconds: time to match and merge, without the evaluation; None where that has no meaning.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    data_set: str | None
    domain: Domain
    metric: str
    value: float
    seconds: float | None = None
