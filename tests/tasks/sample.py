"""A few real sentences with their labels, a toy sub-word tokenizer for them, and tiny models."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lightning import LightningDataModule, LightningModule, Trainer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FEELINGS = [
    ("When I passed the exam .", ["joy"]),
    ("When my father died .", ["sadness"]),
    ("Someone broke into our house at night .", ["anger", "fear"]),
    ("I was alone in the dark .", ["fear"]),
    ("My best friend came to visit .", ["joy"]),
    ("He lied to me again .", ["anger"]),
    ("I lost my dog and found him again .", ["joy", "sadness"]),
    ("The meeting is at noon .", []),
]
SENTENCES = [
    ("George Washington went to Washington .", "B-PER I-PER O O B-LOC O"),
    ("Alice works at Acme Corp in Paris .", "B-PER O O B-ORG I-ORG O B-LOC O"),
    ("The report was late .", "O O O O O"),
    ("Bob and Alice left New York .", "B-PER O B-PER O B-LOC I-LOC O"),
    ("Acme Corp sued the Bank of England .", "B-ORG I-ORG O O B-ORG I-ORG I-ORG O"),
]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
EMOTIONS = ["anger", "fear", "joy", "sadness"]


PAIR = "[CLS] $A [SEP] $B:1 [SEP]:1"


def toy_tokenizer(folder: Path, texts: Iterable[str] = (), pair: str = PAIR, **options: str) -> str:
    """Write a WordPiece tokenizer that knows short words whole and cuts longer ones into letters; returns its path."""
    texts = [*texts, *(text for text, _ in FEELINGS), *(text for text, _ in SENTENCES)]
    words = sorted({word for text in texts for word in text.split()})
    letters = sorted({letter for word in words for letter in word})
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *(w for w in words if 1 < len(w) < 6)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    core = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    core.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ends)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core, **dict(zip(names, SPECIAL, strict=True)), **options)
    wrapped.save_pretrained(folder)
    return str(folder)


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Write one object a line; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def bert(**changes: Any) -> dict[str, Any]:
    """The description of a tiny BERT for the toy tokenizer."""
    fields = {
        "model_type": "bert", "vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1,
    }  # fmt: skip
    return fields | changes


def fitted(task: LightningModule, data: LightningDataModule, folder: Path, steps: int = 60) -> dict[str, float]:
    """Train for some steps; returns what is measured on the test split, which is the training text itself."""
    trainer = Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(task, datamodule=data)
    (measured,) = trainer.test(task, datamodule=data, verbose=False)
    return dict(measured)
