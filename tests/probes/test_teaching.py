"""Probes in words, and of which models they are near to data."""

import pytest

from fusionlab.probes import in_words, teach
from tests.probes.models import MODELS, Tokenizer


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("vit", "auto", "drawings and noise"),
        ("timm", "pixels", "independent pixels"),
        ("bert", "auto", "random tokens"),
        ("masked", "auto", "random tokens"),
        ("causal", "auto", "texts that the models wrote"),
        ("causal", "tokens", "random tokens"),
        ("clip", "noise", "smooth noise and random tokens"),
        ("seq2seq", "auto", "random tokens"),
    ],
)
def test_probes_in_words(name: str, kind: str, told: str) -> None:
    """Told of a model are the kinds that it gets, images first."""
    assert in_words(MODELS[name](), kind) == told


def test_a_tokenizer_tells_that_texts_are_written() -> None:
    model = MODELS["masked"]()
    assert (in_words(model), teach(model)) == ("random tokens", False)
    assert (in_words(model, tokenizer=Tokenizer()), teach(model, Tokenizer())) == ("texts that the models wrote", True)


@pytest.mark.parametrize("name", MODELS)
def test_what_teaches(name: str) -> None:
    """Images and nothing else, or a text that the model writes."""
    assert teach(MODELS[name]()) == (name in ("vit", "timm", "causal"))
