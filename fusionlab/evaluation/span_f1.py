"""F1 of named entities: a span counts only if its first word, its last word and its type are right."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torchmetrics import Metric

from fusionlab.errors import InputError
from fusionlab.forward import IGNORED

Mode = Literal["strict", "conlleval"]
Span = tuple[int, int, str]
OUTSIDE = "O"


class SpanF1(Metric):
    """Micro F1 over the entities of all sentences, from tags in IOB2 (``O``, ``B-PER``, ``I-PER``).

    The modes differ in what a predicted ``I-`` tag is that continues no entity of its type. ``strict`` drops it, as the
    definition of IOB2 has it. ``conlleval`` lets an entity begin there, as the script of the CoNLL shared tasks does.
    Without any entity, predicted or true, the score is 0.

    Args:
        class_names: the tag of each class number.
        mode: ``strict`` or ``conlleval``.

    Attributes:
        sentences: of the last batch: entities found, predicted and true in each sentence, shape ``(batch, 3)``.

    Raises:
        InputError: a class name that is no IOB2 tag, or an unknown mode.
    """

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    full_state_update = False
    correct: Tensor
    predicted: Tensor
    actual: Tensor

    def __init__(self, class_names: Sequence[str], mode: Mode = "strict") -> None:
        super().__init__()
        if mode not in get_args(Mode):
            raise InputError(f"the span mode is {mode!r}, but one of {', '.join(get_args(Mode))} was expected")
        if wrong := [name for name in class_names if not is_iob2(name)]:
            raise InputError(f"the class {wrong[0]!r} is no IOB2 tag; expected O, B-TYPE or I-TYPE")
        self.class_names = list(class_names)
        self.mode: Mode = mode
        self.sentences = torch.zeros((0, 3), dtype=torch.long)
        for name in ("correct", "predicted", "actual"):
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Count the entities of a batch.

        Args:
            predictions: class numbers, shape ``(batch, tokens)``.
            labels: true class numbers, of the same shape; tokens labelled -100 are taken out of both sequences.
        """
        counts = []
        for found, true in zip(predictions.tolist(), labels.tolist(), strict=True):
            known = [index for index, label in enumerate(true) if label != IGNORED]
            guessed = set(spans([self.class_names[found[index]] for index in known], self.mode))
            wanted = set(spans([self.class_names[true[index]] for index in known], self.mode))
            counts.append((len(guessed & wanted), len(guessed), len(wanted)))
        self.sentences = torch.tensor(counts, dtype=torch.long).reshape(-1, 3)
        correct, predicted, actual = self.sentences.sum(0).tolist()
        self.correct += correct
        self.predicted += predicted
        self.actual += actual

    def compute(self) -> Tensor:
        """F1 from 0 to 1: twice the entities found over those predicted plus those there are."""
        return 2 * self.correct / (self.predicted + self.actual).clamp_min(1)


def spans(tags: Sequence[str], mode: Mode = "strict") -> list[Span]:
    """The entities of one sentence.

    Args:
        tags: IOB2 tags, one for each word.
        mode: what a stray ``I-`` tag is, see `SpanF1`.

    Returns:
        First word, last word and type of each entity.
    """
    found: list[Span] = []
    start, kind = 0, ""  # the entity that is open; none while kind is empty
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, name = tag.partition("-")
        if prefix == "I" and name == kind:
            continue
        if kind:
            found.append((start, index - 1, kind))
        begins = prefix == "B" or (prefix == "I" and mode == "conlleval")
        start, kind = index, name if begins else ""
    return found


def is_iob2(tag: str) -> bool:
    """True for ``O``, and for ``B-`` or ``I-`` with a type."""
    return tag == OUTSIDE or (tag[:2] in ("B-", "I-") and len(tag) > 2)
