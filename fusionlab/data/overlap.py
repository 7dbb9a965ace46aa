"""Texts of a test set that a model was trained on: a score on them does not carry over to new texts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Overlap:
    """The part of a test set that was trained on.

    Attributes:
        count: test texts that are among the training texts, each counted as often as it occurs.
        total: all test texts.
    """

    count: int
    total: int

    @property
    def share(self) -> float:
        """`count` of `total`, from 0 to 1; 0 for no texts."""
        return self.count / self.total if self.total else 0.0


def overlap(train_texts: Iterable[str], test_texts: Iterable[str]) -> Overlap:
    """Count the test texts that were trained on; case, punctuation and white space make no difference.

    Args:
        train_texts: of one model.
        test_texts: of another model's data, or its own.

    Returns:
        The count and its share.
    """
    seen = {_normal(text) for text in train_texts}
    found = [_normal(text) in seen for text in test_texts]
    return Overlap(sum(found), len(found))


def _normal(text: str) -> str:
    words = " ".join(re.findall(r"\w+", text.casefold()))
    # Without a letter or digit ("!!!", an emoji) the text itself is compared.
    return words or " ".join(text.split())
