"""Every text task learns a tiny real sample, and what it exports is an ordinary checkpoint with its tokenizer."""

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

from fusionlab import checkpoints
from fusionlab.data import NER, LanguageModelling, TextClassification, TextToText
from fusionlab.errors import InputError
from fusionlab.tasks import (
    CausalLanguageModelling,
    ExportCheckpoint,
    MaskedLanguageModelling,
    SequenceClassification,
    SequenceToSequence,
    TokenClassification,
)
from tests.tasks.sample import EMOTIONS, FEELINGS, SENTENCES, TAGS, bert, fitted, jsonl

SAME = {"train_split": "train", "test_split": "train", "batch_size": 4}


def test_one_label(tmp_path: Path, tokenizer: str) -> None:
    """A classifier tells joyful sentences from others."""
    rows = [{"text": text, "label": int("joy" in labels)} for text, labels in FEELINGS]
    data = TextClassification(jsonl(tmp_path / "x.jsonl", rows), tokenizer, labels=["no", "joy"], **SAME)
    task = SequenceClassification(bert(), ["no", "joy"], learning_rate=5e-3)
    assert fitted(task, data, tmp_path)["test/accuracy"] == 1


def test_several_labels(tmp_path: Path, tokenizer: str) -> None:
    """A classifier of several labels finds all of them; rare ones count more."""
    rows = [{"text": text, "label": labels} for text, labels in FEELINGS]
    path = jsonl(tmp_path / "x.jsonl", rows)
    data = TextClassification(path, tokenizer, task="multilabel", labels=EMOTIONS, **SAME)
    task = SequenceClassification(bert(), EMOTIONS, task="multilabel", class_weights="sqrt", learning_rate=5e-3)
    found = fitted(task, data, tmp_path, steps=120)
    assert found["test/macro_f1"] == found["test/micro_f1"] == 1
    assert task.weights is not None
    absent, present = task.weights[EMOTIONS.index("fear")].tolist()
    assert (absent, present) == pytest.approx(((6**0.5 + 2**0.5) / 2 / 6**0.5, (6**0.5 + 2**0.5) / 2 / 2**0.5))


def test_a_number(tmp_path: Path, tokenizer: str) -> None:
    """A regression of pairs orders them."""
    pairs = [(a, b, float(len(set(a.split()) & set(b.split())))) for (a, _), (b, _) in itertools.pairwise(FEELINGS)]
    rows = [{"a": a, "b": b, "score": score} for a, b, score in pairs]
    columns = {"text_column": "a", "pair_column": "b", "label_column": "score"}
    data = TextClassification(jsonl(tmp_path / "x.jsonl", rows), tokenizer, task="regression", **columns, **SAME)
    task = SequenceClassification(bert(), task="regression", learning_rate=5e-3)
    assert fitted(task, data, tmp_path)["test/pearson"] > 0.95


def test_tags(tmp_path: Path, tokenizer: str) -> None:
    """A tagger finds every entity, also where a word is cut into letters."""
    rows = [{"tokens": text.split(), "ner_tags": tags.split()} for text, tags in SENTENCES]
    data = NER(jsonl(tmp_path / "x.jsonl", rows), tokenizer, val_split=None, **SAME)
    task = TokenClassification(bert(), TAGS, learning_rate=5e-3)
    assert fitted(task, data, tmp_path)["test/f1"] == 1
    header, *predicted = task.prediction_rows([task.eval().predict_step(next(iter(data.test_dataloader())), 0)])
    assert header == ["sample", "word", "predicted"]
    assert [row[-1] for row in predicted] == [tag for _, tags in SENTENCES for tag in tags.split()]


def test_predicted_words_are_numbered_as_in_the_data(tmp_path: Path, tokenizer: str) -> None:
    """Where a sentence is read in pieces, and another has no words; without the data, by what was read."""
    sentences = [["He", "lied"], [], ["the"] * 30, ["noon"]]
    rows = [{"tokens": words, "ner_tags": ["O"] * len(words)} for words in sentences]
    data = NER(jsonl(tmp_path / "x.jsonl", rows), tokenizer, val_split=None, **{**SAME, "max_length": 12})
    task = TokenClassification(bert(), TAGS)
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    batches = trainer.predict(task, datamodule=data) or []
    _, *found = task.prediction_rows(batches)
    numbered = [(number, word) for number, words in enumerate(sentences) for word in range(len(words))]
    assert [(sample, word) for sample, word, _ in found] == numbered
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    trainer.predict(task, dataloaders=data.predict_dataloader())
    _, *pieces = task.prediction_rows(batches)
    assert [tag for *_, tag in pieces] == [tag for *_, tag in found]
    assert len({sample for sample, *_ in pieces}) > 4


def test_weights_of_tags_follow_the_training_sentences(tmp_path: Path, tokenizer: str) -> None:
    """Words are counted once each, whatever they are cut into; ``mean(n) / n`` by hand."""
    rows = [{"tokens": text.split(), "ner_tags": tags.split()} for text, tags in SENTENCES]
    data = NER(jsonl(tmp_path / "x.jsonl", rows), tokenizer, val_split=None, **SAME)
    counts = [18, 4, 1, 3, 1, 3, 4]
    assert data.label_counts().tolist() == counts
    task = TokenClassification(bert(), TAGS, class_weights="inverse")
    fitted(task, data, tmp_path, steps=1)
    assert task.weights is not None
    assert task.weights.tolist() == pytest.approx([sum(counts) / 7 / count for count in counts])


@pytest.mark.parametrize("masked", [True, False])
def test_language_models(tmp_path: Path, tokenizer: str, masked: bool) -> None:
    """The perplexity falls far below the number of tokens in use."""
    path = jsonl(tmp_path / "x.jsonl", [{"text": text} for text, _ in FEELINGS])
    data = LanguageModelling(
        path, tokenizer, masked=masked, mask_probability=0.3, max_length=16, val_split=None, **SAME
    )
    gpt2 = {"model_type": "gpt2", "vocab_size": 200, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    task = (
        MaskedLanguageModelling(bert(), learning_rate=1e-2)
        if masked
        else CausalLanguageModelling(gpt2, learning_rate=1e-2)
    )
    found = fitted(task, data, tmp_path, steps=120)
    assert found["test/perplexity"] < 5
    assert found["test/loss"] == pytest.approx(torch.tensor(found["test/perplexity"]).log().item(), rel=1e-5)
    header, *rows = task.prediction_rows([task.predict_step(next(iter(data.test_dataloader())), 0)])
    assert header == ["sample", "loss", "perplexity"]
    assert rows


def test_texts_from_texts(tmp_path: Path) -> None:
    """A fresh T5 learns to write its answers out, and is told which token its decoder begins with."""
    rows = [{"text": text, "target": "glad" if "joy" in labels else "not so"} for text, labels in FEELINGS]
    data = TextToText(jsonl(tmp_path / "x.jsonl", rows), "bytes", decoder_start=65, **SAME)
    sizes = {"vocab_size": 259, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    t5 = {"model_type": "t5", **sizes, "dropout_rate": 0.0}
    task = SequenceToSequence(t5, max_new_tokens=12, learning_rate=1e-2)
    found = fitted(task, data, tmp_path, steps=150)
    assert found["test/perplexity"] < 1.5
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    header, *written = task.prediction_rows(trainer.predict(task, datamodule=data) or [])
    assert header == ["sample", "predicted", "loss"]
    assert [row[1] for row in written] == [row["target"] for row in rows]
    checkpoints.save(task.model.eval(), tmp_path / "out")
    again: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    for part in (again.config, again.generation_config):
        assert (part.decoder_start_token_id, part.pad_token_id, part.eos_token_id) == (65, 256, 257)
    assert task.hparams["max_new_tokens"] == 12


def test_a_text_is_written_from_the_token_that_its_target_begins_with(tmp_path: Path) -> None:
    """It may be another one for each, such as the code of a language."""
    rows = [{"text": text, "target": text} for text, _ in FEELINGS]
    data = TextToText(jsonl(tmp_path / "x.jsonl", rows), "bytes", decoder_start="last", eval_batch_size=8, **SAME)
    sides = {"layers": 1, "attention_heads": 2, "ffn_dim": 8}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()}
    tokens = {"vocab_size": 259, "max_position_embeddings": 199, "pad_token_id": 256, "eos_token_id": 257}
    task = SequenceToSequence({"model_type": "mbart", "d_model": 8, **sizes, **tokens}, max_new_tokens=3)
    task.eval()
    (batch,) = data.test_dataloader()
    batch["decoder_input_ids"][:, 0] = torch.arange(60, 68)
    wrapped: Any = task.model
    with (
        patch.object(wrapped, "generate", wraps=wrapped.generate) as generate,
        patch.object(task, "data", lambda: data),
    ):
        written, losses = task.predict_step(batch, 0)
    assert generate.call_args.kwargs["decoder_input_ids"].tolist() == [[token] for token in range(60, 68)]
    assert len(written) == len(losses) == 8


def test_a_decoder_that_begins_otherwise_is_refused(tmp_path: Path) -> None:
    """In one sentence that says what to set."""
    rows = [{"text": text, "target": text} for text, _ in FEELINGS]
    data = TextToText(jsonl(tmp_path / "x.jsonl", rows), "bytes", **SAME)
    sizes = {"vocab_size": 259, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    task = SequenceToSequence({"model_type": "umt5", **sizes})
    with pytest.raises(InputError, match=r"begins with the token 0, .* with 256; expected data.decoder_start: 0"):
        fitted(task, data, tmp_path, steps=1)


def test_the_best_weights_by_the_main_score_are_exported_with_the_tokenizer(tmp_path: Path, tokenizer: str) -> None:
    """``val/score`` drives ModelCheckpoint for any task; the folder loads with its tokenizer and gives the same."""
    rows = [{"text": text, "label": int("joy" in labels)} for text, labels in FEELINGS]
    data = TextClassification(
        jsonl(tmp_path / "x.jsonl", rows), tokenizer, labels=["no", "joy"], val_split="train", **SAME
    )
    task = SequenceClassification(bert(), ["no", "joy"], learning_rate=5e-3)
    best = ModelCheckpoint(dirpath=tmp_path, monitor="val/score", mode="max", save_weights_only=True)
    trainer = Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[best, ExportCheckpoint(str(tmp_path / "out"))],
    )  # fmt: skip
    trainer.fit(task, datamodule=data)
    assert best.best_model_score is not None
    stored = checkpoints.load(best.best_model_path).state_dict()
    exported = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert exported.config.problem_type == "single_label_classification"
    assert exported.config.id2label == {0: "no", 1: "joy"}
    assert all(torch.equal(exported.state_dict()[name], tensor) for name, tensor in stored.items())
    text = FEELINGS[0][0]
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"] == data.tokenizer(text)["input_ids"]


def test_data_of_another_task_or_with_other_labels_is_refused(tmp_path: Path, tokenizer: str) -> None:
    """Before the first step, in one sentence."""
    rows = [{"text": text, "label": int("joy" in labels)} for text, labels in FEELINGS]
    path = jsonl(tmp_path / "x.jsonl", rows)
    data = TextClassification(path, tokenizer, labels=["joy", "no"], **SAME)
    with pytest.raises(InputError, match="class 0 of the data x is 'joy', but 'no' of the model"):
        fitted(SequenceClassification(bert(), ["no", "joy"]), data, tmp_path)
    with pytest.raises(InputError, match="is for the task classification"):
        fitted(TokenClassification(bert(), TAGS), data, tmp_path)
    with pytest.raises(InputError, match=r"tokenizer of the data has \d+ tokens, but the model has embeddings for 9"):
        fitted(SequenceClassification(bert(vocab_size=9), ["joy", "no"]), data, tmp_path)
