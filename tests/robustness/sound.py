"""Undamaged inputs of every kind that fusionlab reads, small, and the same in every run."""

import io
import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from fusionlab import checkpoints
from fusionlab.cli import main
from tests.commands.small import randomized, timm_vit, vit

WORDS = [
    "the",
    "a",
    "model",
    "weight",
    "matches",
    "merges",
    "rotates",
    "never",
    "always",
    "layer",
    "head",
    "bias",
    "one",
    "two",
    "three",
    "is",
    "was",
    "not",
    "and",
    "or",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = ["--data", "fusionlab.data.TextClassification", "--data.tokenizer", "bert_a", "--data.val_split", "null"]


def make(folder: str) -> None:
    """Write every undamaged input into a folder.

    ``a`` and ``b`` are ViTs, also as ``sharded_*``, ``bin_*``, ``binsharded_*`` and ``lightning_*.ckpt``; ``timm_*``
    the same of timm, ``bert_*`` text classifiers with a tokenizer. ``*.statistics.safetensors`` are of ``a`` and ``b``,
    ``grid`` is a finished comparison; the folder ``data`` holds tables, ``configs`` configs.
    """
    place = Path(folder)
    for seed, name in enumerate("ab"):
        model = vit(seed)
        checkpoints.save(model, place / name)
        checkpoints.save(timm_vit(seed), place / f"timm_{name}")
        model.save_pretrained(place / f"sharded_{name}", max_shard_size="8KB")
        (place / f"bin_{name}").mkdir()
        shutil.copy(place / name / "config.json", place / f"bin_{name}")
        torch.save(model.state_dict(), place / f"bin_{name}" / "pytorch_model.bin")
        _pickled_shards(model.state_dict(), place / f"binsharded_{name}")
        shutil.copy(place / name / "config.json", place / f"binsharded_{name}")
        state = {f"model.{key}": tensor for key, tensor in model.state_dict().items()}
        archive = {"state_dict": state, "epoch": 3, "fusionlab": checkpoints.describe(model)}
        torch.save(archive, place / f"lightning_{name}.ckpt")
        checkpoints.save(bert(seed), place / f"bert_{name}")
        tokenizer().save_pretrained(place / f"bert_{name}")
    _tables(place / "data")
    _configs(place / "configs")
    os.chdir(place)
    for name in "ab":
        line = f"gather {name} --data Digits --samples 40 --kinds gram,fisher,activations --rows 16"
        _run(f"{line} --output {name}.statistics.safetensors")
    _run("compare --config configs/compare.yaml --output grid")


def _run(line: str) -> None:
    if main(line.split()):
        raise RuntimeError(f"{line} failed")


def bert(seed: int) -> BertForSequenceClassification:
    """A text classifier of three classes over the vocabulary of `tokenizer`."""
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, num_labels=3,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    randomized(model, seed)
    return model


def tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """One token for each of some words, or of their pieces, between [CLS] and [SEP]."""
    core = Tokenizer(models.WordPiece({word: i for i, word in enumerate([*SPECIAL, *words])}, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=40, **names)


def rows(count: int = 24) -> list[tuple[str, int, str]]:
    """Texts, labels and splits."""
    draw = random.Random(0)
    return [
        (" ".join(draw.choices(WORDS, k=draw.randint(3, 8))), i % 3, "train" if i < count * 2 // 3 else "test")
        for i in range(count)
    ]


def _tables(folder: Path) -> None:
    folder.mkdir()
    texts = rows()
    columns = {"text": [t for t, _, _ in texts], "label": [n for _, n, _ in texts], "split": [s for _, _, s in texts]}
    lines = ["text,label,split", *(f"{text},{label},{split}" for text, label, split in texts)]
    (folder / "text.csv").write_text("\n".join(lines) + "\n")
    records = [{"text": text, "label": label, "split": split} for text, label, split in texts]
    (folder / "text.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pq.write_table(pa.table(columns), folder / "text.parquet")
    draw = random.Random(1)
    images = []
    for _ in range(24):
        buffer = io.BytesIO()
        Image.frombytes("L", (8, 8), draw.randbytes(64)).save(buffer, "PNG")
        images.append({"bytes": buffer.getvalue(), "path": None})
    numbers = [i % 10 for i in range(24)]
    pq.write_table(pa.table({"image": images, "label": numbers, "split": columns["split"]}), folder / "images.parquet")
    tags = {"model": "B-ORG", "weight": "B-PER", "layer": "B-LOC", "head": "I-LOC"}
    sentences = ["\n".join(f"{word} {tags.get(word, 'O')}" for word in text.split()) for text, _, _ in texts]
    (folder / "tags.conll").write_text("\n\n".join(sentences) + "\n")


def _configs(folder: Path) -> None:
    folder.mkdir()
    fuse = {"ckpts": ["a", "b"], "match": "paper", "method": "simple", "seed": 3, "accelerator": "cpu"}
    task = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 16, "num_hidden_layers": 1}
    fit = {
        "seed_everything": 0,
        "trainer": {
            "max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 1, "limit_test_batches": 1,
            "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
            "callbacks": [{"class_path": "fusionlab.tasks.ExportCheckpoint", "init_args": {"output": "out"}}],
        },
        "model": {
            "class_path": "fusionlab.tasks.ImageClassification",
            "init_args": {
                "model": {"library": "transformers", "model_type": "vit", "num_attention_heads": 2,
                          "intermediate_size": 32, **task},
                "num_classes": 10,
            },
        },
        "data": {"class_path": "fusionlab.data.Digits", "init_args": {"batch_size": 16}},
    }  # fmt: skip
    digits = {"class_path": "fusionlab.data.Digits", "init_args": {"batch_size": 400}}
    compare = {
        "end_models": {name: {"ckpt": name, "data": digits} for name in "ab"},
        "methods": ["simple"], "matchings": ["paper"], "samples": 50, "accelerator": "cpu",
        "ensemble": False,
    }  # fmt: skip
    for name, settings in (("fuse", fuse), ("fit", fit), ("compare", compare)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


def _pickled_shards(state: dict[str, torch.Tensor], folder: Path) -> None:
    """A state dict in two pickled shards with an index."""
    folder.mkdir()
    names = list(state)
    parts = {1: names[: len(names) // 2], 2: names[len(names) // 2 :]}
    files = {number: f"pytorch_model-{number:05d}-of-00002.bin" for number in parts}
    for number, part in parts.items():
        torch.save({name: state[name] for name in part}, folder / files[number])
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    weight_map = {name: files[number] for number, part in parts.items() for name in part}
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
