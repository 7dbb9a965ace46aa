"""F1 of several labels against counting by hand, where some entries are unknown."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fusionlab.evaluation.multilabel_f1 import MultilabelF1
from fusionlab.forward import IGNORED

LABELS = 3
ENTRY = st.tuples(st.booleans(), st.sampled_from([0, 1, IGNORED]))
SAMPLE = st.lists(ENTRY, min_size=LABELS, max_size=LABELS)


def by_hand(entries: list[tuple[bool, int]]) -> float | None:
    """2 hits / (2 hits + false alarms + misses) over known entries; None where none is known."""
    known = [(predicted, label) for predicted, label in entries if label != IGNORED]
    hits = sum(predicted and label == 1 for predicted, label in known)
    wrong = sum(predicted != (label == 1) for predicted, label in known)
    return (2 * hits / (2 * hits + wrong) if hits else 0.0) if known else None


def measured(batches: list[list[list[tuple[bool, int]]]], average: str) -> float:
    metric = MultilabelF1(LABELS, average)  # type: ignore[arg-type]
    for batch in batches:
        predictions = torch.tensor([[predicted for predicted, _ in sample] for sample in batch])
        metric.update(predictions, torch.tensor([[label for _, label in sample] for sample in batch]))
    return float(metric.compute())


@given(samples=st.lists(SAMPLE, min_size=1, max_size=6))
def test_unknown_entries_count_nowhere(samples: list[list[tuple[bool, int]]]) -> None:
    """Macro is the mean over labels that are known somewhere, micro takes all known entries; also over two updates."""
    each = [by_hand([sample[label] for sample in samples]) for label in range(LABELS)]
    found = [score for score in each if score is not None]
    together = by_hand([entry for sample in samples for entry in sample])
    expected = {"macro": sum(found) / len(found) if found else 0.0, "micro": together or 0.0}
    for average, value in expected.items():
        assert measured([samples], average) == pytest.approx(value, abs=1e-6)
        assert measured([samples[:1], samples], average) == pytest.approx(
            measured([[*samples[:1], *samples]], average), abs=1e-6
        )
