"""Images of one colour each, in a folder for each colour, and a tiny CLIP that reads the colours' names."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast

from fusionlab import checkpoints

COLOURS = {"dark_red": (120, 0, 0), "green": (0, 200, 0), "light_blue": (90, 90, 255), "white": (250, 250, 250)}
WORDS = ["<pad>", "<bos>", "<unk>", "a", "photo", "of", "dark", "red", "green", "light", "blue", "white", ".", "<eos>"]
WIDTH: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
}  # fmt: skip


def images(folder: Path, names: Iterable[str] = COLOURS, count: int = 6) -> str:
    """Write some noisy images of each colour; returns the folder's path."""
    draw = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.clip(np.array(COLOURS[name]) + draw.normal(0, 20, (8, 8, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{index}.png")
    return str(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word; texts begin and end with tokens of their own, as CLIP's do."""
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<bos>", WORDS.index("<bos>")), ("<eos>", WORDS.index("<eos>"))]
    core.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


def description() -> dict[str, Any]:
    """A tiny CLIP for these images and words."""
    text = {**WIDTH, "vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1}
    return {
        "text_config": {**text, "eos_token_id": len(WORDS) - 1},
        "vision_config": {**WIDTH, "image_size": 8, "patch_size": 4},
        "projection_dim": 8,
    }


def clip(folder: Path, seed: int = 0) -> str:
    """Write such a model with its tokenizer; returns the folder's path."""
    torch.manual_seed(seed)
    checkpoints.save(CLIPModel(CLIPConfig(**description())).eval(), folder)
    tokenizer().save_pretrained(folder)
    return str(folder)
