"""The tokenizer that the benchmark of GPT-2 by its own tokens makes smaller: texts are split as by the whole one."""

import itertools
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = ("to be or not to be, that is the question:\n\n", "whether 'tis nobler in the mind to suffer\n\n")
OTHERS = ("the slings and arrows of outrageous fortune", "or to take arms against a sea of troubles")


@pytest.fixture
def smaller(benchmark: Any) -> Any:
    return benchmark("shakespeare_tokens")


@pytest.fixture
def whole() -> Tokenizer:
    """A byte-level BPE that learned from more than is to be split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"],
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([*TEXTS, *OTHERS] * 3, trainer)
    return tokenizer


def test_texts_are_split_alike_by_fewer_tokens(smaller: Any, whole: Tokenizer) -> None:
    """Merges of other texts are gone; every byte is left, so other texts can be read too."""
    result = smaller.smaller(whole, TEXTS)
    for text in TEXTS:
        assert result.encode(text).tokens == whole.encode(text).tokens
        assert result.decode(result.encode(text).ids) == text
    assert any(len(token) > 1 for token in result.encode(TEXTS[0]).tokens)
    assert result.get_vocab_size() < whole.get_vocab_size()
    assert sorted(result.get_vocab().values()) == list(range(result.get_vocab_size()))
    assert result.decode(result.encode(OTHERS[0]).ids) == OTHERS[0]
    assert result.token_to_id("<|endoftext|>") is not None


def test_what_merges_pass_through_is_needed(smaller: Any) -> None:
    """By every word of four letters against a search of all ways to it."""
    merges = [("a", "b"), ("c", "d"), ("ab", "cd"), ("b", "c"), ("a", "bc")]
    for word in map("".join, itertools.permutations("abcd")):
        tokens = [token for token in ("abcd", "abc", "bc", "cd") if token in word]
        expected = set(tokens)
        for _ in merges:
            expected |= {part for pair in merges if "".join(pair) in expected for part in pair}
        assert smaller.needed(tokens, merges) == expected
