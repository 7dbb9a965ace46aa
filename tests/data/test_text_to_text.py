"""Texts and their targets: what a decoder reads is what transformers' own models put before the labels."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close
from transformers import MBartConfig, MBartForConditionalGeneration, MBartTokenizer

from fusionlab.data import TextToText
from fusionlab.decoder_inputs import decoder_inputs, decoder_start
from fusionlab.errors import InputError
from fusionlab.forward import logits
from tests.parts import EVERY
from tests.symmetry.infer.cases import seq2seq
from tests.symmetry.infer.cases.sample import Sample
from tests.tasks.sample import FEELINGS, jsonl

TEXTS = [text for text, _ in FEELINGS]
ROWS = [{"text": text, "target": " ".join(reversed(text.split()[:3]))} for text in TEXTS]
SAME: dict[str, Any] = {"test_split": "train"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of the sample's sentences; each target is the first three words of its text, backwards."""
    return jsonl(tmp_path / "x.jsonl", ROWS)


def batch_of(data: TextToText) -> dict[str, Any]:
    (batch,) = data.test_dataloader()
    return batch


def test_the_decoder_reads_the_token_before_each_label(path: str) -> None:
    """Both sides are padded to their own longest; targets end with the end of a text, and padding has no label."""
    data = TextToText(path, "bytes", eval_batch_size=len(ROWS), **SAME)
    batch, tokenizer = batch_of(data), data.tokenizer
    known = batch["labels"] != -100
    assert (known == batch["decoder_attention_mask"].bool()).all()
    assert (batch["decoder_input_ids"][:, 0] == tokenizer.pad_token_id).all()
    assert (batch["decoder_input_ids"][:, 1:] == batch["labels"][:, :-1])[known[:, 1:]].all()
    for labels, row in zip(batch["labels"], ROWS, strict=True):
        assert tokenizer.decode(labels[labels != -100]) == row["target"] + tokenizer.eos_token
    for tokens, row in zip(batch["input_ids"], ROWS, strict=True):
        assert tokenizer.decode(tokens[tokens != tokenizer.pad_token_id]) == row["text"]
    assert data.texts("test") == TEXTS


def test_targets_are_cut_before_their_end(path: str, tokenizer: str) -> None:
    """The end stays, the tokenizer's own as well as one that is put there; texts have a prefix and their own length."""
    for source in ("bytes", tokenizer):
        data = TextToText(path, source, prefix="reverse: ", max_length=12, target_length=6, eval_batch_size=8, **SAME)
        batch = batch_of(data)
        assert batch["labels"].shape[1] == 6
        assert batch["input_ids"].shape[1] == 12
        end = data.tokenizer.eos_token_id if source == "bytes" else data.tokenizer.sep_token_id
        assert all(labels[labels != -100][-1] == end for labels in batch["labels"])
    plain = TextToText(path, "bytes", prefix="reverse: ", **SAME)
    assert plain.tokenizer.decode(batch_of(plain)["input_ids"][0]).startswith(f"reverse: {TEXTS[0]}")


def test_a_row_without_a_target_counts_in_no_score(tmp_path: Path) -> None:
    """Its labels are unknown; its text is read."""
    path = jsonl(tmp_path / "x.jsonl", [*ROWS[:2], {"text": "alone", "target": None}])
    batch = batch_of(TextToText(path, "bytes", **SAME))
    assert (batch["labels"][2] == -100).all()
    assert (batch["labels"][:2] != -100).any(1).all()
    assert batch["decoder_attention_mask"].any(1).all()


@pytest.mark.parametrize(
    "sample", [one for one in seq2seq.SAMPLES if EVERY or one.name in ("t5", "bart", "mbart")], ids=lambda one: one.name
)
def test_decoders_begin_as_models_do_by_themselves(sample: Sample) -> None:
    """Logits are those that a model of transformers gives from labels alone."""
    model: Any = sample.build().eval()
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        pytest.skip("makes no inputs of labels")
    if model.config.decoder_start_token_id is None:
        model.config.decoder_start_token_id = 0  # of T5
    targets = [[5, 6, 7, 2], [8, 9, 2, 2]]
    start = decoder_start(model.config, padding=1)
    expected = model.prepare_decoder_input_ids_from_labels(torch.tensor(targets))
    assert [decoder_inputs(target, start) for target in targets] == expected.tolist()


def test_the_start_is_that_of_the_config_beside_the_tokenizer(path: str, tmp_path: Path) -> None:
    """mBART begins with the last token of its target, a language; the languages are said or the tokenizer's own."""
    pieces = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((x, -1.0) for x in "▁abcdefghijklmnopqrstuvw"),
    ]
    MBartTokenizer(vocab=pieces, src_lang="en_XX", tgt_lang="ro_RO").save_pretrained(tmp_path / "mbart")
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 99}
    data = TextToText(path, str(tmp_path / "mbart"), eval_batch_size=8, **SAME)
    model = MBartForConditionalGeneration(MBartConfig(vocab_size=data.vocabulary_size, **sizes, **heads)).eval()
    model.save_pretrained(tmp_path / "mbart")
    assert data.decoder_start == "last"
    batch = batch_of(data)
    known: Any = data.tokenizer
    assert (batch["decoder_input_ids"][:, 0] == known.convert_tokens_to_ids("ro_RO")).all()
    own = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"])
    counts = batch["labels"] != -100
    assert_close(logits(model, batch)[counts], own.logits[counts], atol=1e-5, rtol=0)
    english = TextToText(path, str(tmp_path / "mbart"), target_language="en_XX", eval_batch_size=8, **SAME)
    assert (batch_of(english)["decoder_input_ids"][:, 0] == known.convert_tokens_to_ids("en_XX")).all()
    other = TextToText(
        path, str(tmp_path / "mbart"), text_language="de_DE", target_language="en_XX", eval_batch_size=8, **SAME
    )
    assert (batch_of(other)["decoder_input_ids"][:, 0] == known.convert_tokens_to_ids("en_XX")).all()
    assert (other.tokenizer(TEXTS[0])["input_ids"]) != known(TEXTS[0])["input_ids"]


def test_columns_of_translations_have_parts(tmp_path: Path) -> None:
    """As the translation sets of the hub have them."""
    rows = [{"id": str(place), "translation": {"en": text, "de": text.upper()}} for place, text in enumerate(TEXTS)]
    Dataset.from_list(rows).to_parquet(tmp_path / "x.parquet")
    columns = {"text_column": "translation.en", "target_column": "translation.de"}
    data = TextToText(str(tmp_path / "x.parquet"), "bytes", eval_batch_size=8, **columns, **SAME)
    labels = batch_of(data)["labels"][0]
    assert data.tokenizer.decode(labels[labels != -100], skip_special_tokens=True) == TEXTS[0].upper()
    assert data.texts("test") == TEXTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_length": 3}, "data.target_length is 3, but at least 4 was expected"),
        ({"target_column": "summary"}, "has no column 'summary'; it has text, target"),
        ({"text_language": "en_XX"}, "the tokenizer bytes knows no languages"),
    ],
)
def test_what_cannot_be_read_is_refused(path: str, options: dict[str, Any], message: str) -> None:
    """In one sentence."""
    with pytest.raises(InputError, match=message):
        TextToText(path, "bytes", **options, **SAME).setup("test")
