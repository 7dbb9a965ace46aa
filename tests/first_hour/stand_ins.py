"""Small models, tokenizers and data under the names that the pages use, all made from configs."""

import csv
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from fusionlab import checkpoints

WORDS = ["[PAD]", "[UNK]", "[SEP]", "the", "film", "was", "is", "a", "good", "bad", "fine", "poor", "story", "plot"]
WORDS += ["and", "quite", "very"]
LABELS = ("negative", "positive")
RANK = 2


def make(folder: Path) -> None:
    """Everything that the commands of the pages read, below a folder.

    ``models/reviews`` and ``models/tweets`` are BERTs with one head, ``models/base``, ``models/code`` and
    ``models/chat`` Llamas, ``adapters/code`` and ``adapters/chat`` LoRA adapters of the base model; ``reviews.csv``,
    ``tweets.csv`` and ``text.txt`` are data.
    """
    _classifiers(folder / "models")
    _llamas(folder)
    for name in ("reviews", "tweets"):
        _table(folder / f"{name}.csv", name)
    sentences = [f"the {noun} was {how}" for noun in ("film", "story") for how in WORDS[8:12]]
    (folder / "text.txt").write_text("\n".join(sentences * 12), encoding="utf-8")


def _tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, "[UNK]"))
    raw.pre_tokenizer = Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "sep_token": "[SEP]", "eos_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=32, **names)


def _classifiers(folder: Path) -> None:
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, id2label=dict(enumerate(LABELS)), label2id={n: i for i, n in enumerate(LABELS)},
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    for name in ("reviews", "tweets"):
        _changed(model)
        checkpoints.save(model, folder / name)
        _tokenizer().save_pretrained(folder / name)


def _llamas(folder: Path) -> None:
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, max_position_embeddings=40,
    )  # fmt: skip
    torch.manual_seed(0)
    base = LlamaForCausalLM(config)
    checkpoints.save(base, folder / "models" / "base")
    _tokenizer().save_pretrained(folder / "models" / "base")
    for name in ("code", "chat"):
        model = LlamaForCausalLM(config)
        model.load_state_dict(base.state_dict())
        _changed(model)
        checkpoints.save(model, folder / "models" / name)
        _tokenizer().save_pretrained(folder / "models" / name)
        _adapter(folder / "adapters" / name, base)


def _changed(model: torch.nn.Module) -> None:
    """What fine-tuning would do, roughly: every parameter is another by a little."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))


def _adapter(folder: Path, base: LlamaForCausalLM) -> None:
    """A folder as PEFT writes it, of all queries and values."""
    folder.mkdir(parents=True)
    tensors = {}
    for name, module in base.named_modules():
        if name.endswith(("q_proj", "v_proj")):
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(RANK, module.in_features)
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(module.out_features, RANK) / 9
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK}
    config |= {"base_model_name_or_path": "models/base", "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def _table(path: Path, kind: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for index in range(48):
            what = WORDS[8 + index % 4]
            how = WORDS[15 + index % 2]
            rows.writerow([f"the {kind[:4]} {WORDS[12 + index % 2]} is {how} {what}", LABELS[what in ("good", "fine")]])
