"""Scores of answers to questions, by the tokens where they begin and end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fusionlab.evaluation.contributions import Record
from fusionlab.evaluation.metrics import MeanFraction
from fusionlab.evaluation.scores import Scores
from fusionlab.forward import IGNORED

# Tokens of an answer, as the published scripts for SQuAD have it.
LONGEST = 30


class AnswerScores(Scores):
    """Cross-entropy of both ends of an answer, the F1 of its tokens and the share of answers that are exactly right.

    These are SQuAD's two scores (Rajpurkar et al., 2016) on tokens in place of words: neither articles nor punctuation
    are left out, and one answer is right for each question. F1 is the mean over questions.
    """

    def __init__(self) -> None:
        super().__init__({"f1": MeanFraction(), "exact_match": MeanFraction()})

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score logits of shape ``(batch, 2, tokens)`` and labels of shape ``(batch, 2)``; -100 is unknown."""
        self._add_loss(output, labels)
        known = (labels != IGNORED).all(1)
        shared, exact = span_overlap(best_spans(output[known]), labels[known])
        metrics: dict[str, Any] = dict(self._named())
        metrics["f1"].update(shared.sum(), len(shared))
        metrics["exact_match"].update(exact.sum(), len(exact))
        if self._record is not None:
            counts = known.float()
            # Where there is no answer, it begins and ends at the first token.
            answerless = (labels[known] == 0).all(1).long()
            self._record.count_classes(answerless, answerless, 2)
            for name, values in (("f1", shared), ("exact_match", exact)):
                self._record.add(name, "mean", torch.zeros_like(counts).masked_scatter(known, values), counts)

    def _keep(
        self, record: Record, predicted: Tensor, known: Tensor, example: Tensor, losses: Tensor, counts: Tensor
    ) -> None:
        """Nothing: answers are counted by question."""

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        """The share of questions without an answer: what never answering scores."""
        return dict.fromkeys(self.metrics, float(actual[1] / max(actual.sum(), 1)) if actual.size else 0.0)


def best_spans(output: Tensor, longest: int = LONGEST) -> Tensor:
    """The most probable answers: the first and the last token of each.

    Args:
        output: logits of where an answer begins and ends, shape ``(batch, 2, tokens)``.
        longest: most tokens of an answer.

    Returns:
        Shape ``(batch, 2)``; no answer ends before it begins.
    """
    begins, ends = output.float().unbind(1)
    # For each token the ends of all answers that begin there.
    behind = functional.pad(ends, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)
    together = (begins[:, :, None] + behind).flatten(1)
    best = together.argmax(1) if len(output) else output.new_zeros(0, dtype=torch.long)
    first = best.div(longest, rounding_mode="floor")
    return torch.stack([first, first + best % longest], 1)


def span_overlap(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The F1 of the tokens of each answer, and 1 where it is exactly right, both of shape ``(batch,)``.

    Args:
        found: first and last token of each, shape ``(batch, 2)``.
        wanted: the same of the right ones.
    """
    lengths = (found[:, 1] - found[:, 0] + 1) + (wanted[:, 1] - wanted[:, 0] + 1)
    shared = torch.minimum(found[:, 1], wanted[:, 1]) - torch.maximum(found[:, 0], wanted[:, 0]) + 1
    return 2 * shared.clamp_min(0) / lengths, (found == wanted).all(1).float()
