"""Entity F1 against seqeval, on sequences made to go wrong, and against counting by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.span_f1 import Mode, SpanF1, spans
from fusionlab.forward import IGNORED

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SENTENCE = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9)


def padded(sentences: list[list[int]], fill: int) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([[*sentence, *[fill] * (longest - len(sentence))] for sentence in sentences])


@pytest.mark.parametrize("mode", ["strict", "conlleval"])
@given(batch=st.lists(SENTENCE, min_size=1, max_size=5))
def test_equal_to_seqeval(mode: Mode, batch: list[list[tuple[int, int]]]) -> None:
    """Any predictions against any truth: stray I-, types that change inside an entity, entities up to the last word."""
    seqeval = pytest.importorskip("seqeval.metrics")
    scheme = pytest.importorskip("seqeval.scheme")
    predicted = [[pair[0] for pair in sentence] for sentence in batch]
    actual = [[pair[1] for pair in sentence] for sentence in batch]
    options = {"mode": "strict", "scheme": scheme.IOB2} if mode == "strict" else {}
    named = [[[NAMES[index] for index in sentence] for sentence in side] for side in (actual, predicted)]
    expected = seqeval.f1_score(*named, zero_division=0, **options)
    metric = SpanF1(NAMES, mode)
    # Two updates, and padding that must not count.
    metric.update(padded(predicted[:1], 1), padded(actual[:1], IGNORED))
    if batch[1:]:
        metric.update(padded(predicted[1:], 1), padded(actual[1:], IGNORED))
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-6)


def test_modes_differ_in_stray_continuations_only() -> None:
    """``I-PER I-PER`` after ``O`` is nothing to the one and an entity to the other."""
    tags = ["O", "I-PER", "I-PER", "B-PER", "I-LOC", "I-LOC", "B-LOC", "B-LOC"]
    assert spans(tags, "strict") == [(3, 3, "PER"), (6, 6, "LOC"), (7, 7, "LOC")]
    assert spans(tags, "conlleval") == [(1, 2, "PER"), (3, 3, "PER"), (4, 5, "LOC"), (6, 6, "LOC"), (7, 7, "LOC")]


def test_unlabelled_tokens_do_not_break_an_entity() -> None:
    """The other sub-words of a word, labelled -100, lie inside an entity without ending it."""
    labels = torch.tensor([[IGNORED, 1, IGNORED, 2, 0, IGNORED]])
    predictions = torch.tensor([[4, 1, 3, 2, 0, 1]])
    metric = SpanF1(NAMES)
    metric.update(predictions, labels)
    assert metric.compute() == 1
    assert (metric.actual, metric.predicted) == (1, 1)


def test_states_add_up_over_processes() -> None:
    """Merging the states of two halves is the metric of the whole."""
    generator = torch.Generator().manual_seed(0)
    predictions, labels = (torch.randint(5, (8, 12), generator=generator) for _ in range(2))
    whole, first, second = SpanF1(NAMES), SpanF1(NAMES), SpanF1(NAMES)
    whole.update(predictions, labels)
    first.update(predictions[:3], labels[:3])
    second.update(predictions[3:], labels[3:])
    first.merge_state(second)
    assert first.compute() == whole.compute() > 0


def test_nothing_to_find() -> None:
    """Without entities the score is 0, not a division by it."""
    metric = SpanF1(NAMES)
    metric.update(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
    assert metric.compute() == 0


@pytest.mark.parametrize(("names", "mode", "message"), [(["O", "PER"], "strict", "'PER'"), (NAMES, "iob1", "'iob1'")])
def test_mistakes(names: list[str], mode: Mode, message: str) -> None:
    """Names the tag or the mode."""
    with pytest.raises(InputError, match=message):
        SpanF1(names, mode)
