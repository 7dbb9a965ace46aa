"""Small folders as sentence-transformers writes them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WIDTH, OUT = 16, 8


def embedding_model(folder: Path, seed: int, pooling: str = "mean", dense: bool = True, **config: Any) -> Path:
    """A BERT with pooling, a dense layer if asked for, and normalising; its folder."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": len(WORDS), "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 32,
    }  # fmt: skip
    model = BertModel(BertConfig(**(sizes | config)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    modules = [("", "Transformer", None), ("1_Pooling", "Pooling", _pooling(pooling))]
    if dense:
        modules.append(("2_Dense", "Dense", _DENSE))
    modules.append((f"{len(modules)}_Normalize", "Normalize", {}))
    listed = []
    for index, (place, kind, described) in enumerate(modules):
        listed.append({"idx": index, "name": str(index), "path": place, "type": f"sentence_transformers.models.{kind}"})
        if described is not None:
            (folder / place).mkdir()
            (folder / place / "config.json").write_text(json.dumps(described))
    (folder / "modules.json").write_text(json.dumps(listed))
    if dense:
        state = {"linear.weight": torch.randn(OUT, WIDTH), "linear.bias": torch.randn(OUT)}
        save_file(state, folder / "2_Dense" / "model.safetensors")
    return folder


_DENSE = {
    "in_features": WIDTH, "out_features": OUT, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"
}  # fmt: skip


def _pooling(mode: str) -> dict[str, Any]:
    names = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    return {"word_embedding_dimension": WIDTH} | {name: key == mode for key, name in names.items()}
