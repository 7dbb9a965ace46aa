"""Small random models, and what tests compare them by."""

import copy
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

from fusionlab.forward import logits
from fusionlab.symmetry import blueprint

# Models this small gain nothing from threads, which only wait for each other on a busy machine.
torch.set_num_threads(1)

WIDTH, LAYERS, HEADS, HIDDEN = 16, 2, 2, 32


def randomized(model: nn.Module, seed: int) -> nn.Module:
    """Give every parameter, biases and norms included, random numbers of order 0.3."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = 0.3 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + noise if parameter.ndim == 1 and name.endswith("weight") else noise)
    return model.eval()


def vit(seed: int = 0, **changes: Any) -> ViTForImageClassification:
    """A ViT of transformers for the 8 x 8 digits."""
    fields: dict[str, Any] = {
        "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": HIDDEN, "num_labels": 10,
    }  # fmt: skip
    model = ViTForImageClassification(ViTConfig(**(fields | changes)))
    randomized(model, seed)
    return model


def bert(seed: int = 0, vocab_size: int = 31, **changes: Any) -> BertForSequenceClassification:
    """A BERT of transformers with four classes."""
    fields: dict[str, Any] = {
        "vocab_size": vocab_size, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN, "max_position_embeddings": 20, "num_labels": 4,
    }  # fmt: skip
    model = BertForSequenceClassification(BertConfig(**(fields | changes)))
    randomized(model, seed)
    return model


def timm_vit(seed: int = 0) -> nn.Module:
    """A ViT of timm for the 8 x 8 digits."""
    size: dict[str, Any] = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": WIDTH, "depth": LAYERS}
    model = timm.create_model("vit_tiny_patch16_224", num_heads=HEADS, num_classes=10, mlp_ratio=2, **size)
    return randomized(model, seed)


def random_logits(model: nn.Module, seed: int = 7) -> Tensor:
    """Logits on random inputs, computed in float64."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {i.name: i.random(5, generator) for i in blueprint(model).inputs}
    with torch.no_grad():
        return logits(copy.deepcopy(model).double().eval(), inputs)


def digit_scores(model: nn.Module, classes: tuple[int, ...] = tuple(range(10))) -> dict[str, float]:
    """Loss and accuracy on the 397 test digits (or some classes of them), straight from scikit-learn and torch."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))[1400:]
    images = torch.tensor(data.images[order], dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(data.target[order])
    kept = torch.isin(labels, torch.tensor(classes))
    with torch.no_grad():
        found = logits(model, {"pixel_values": images[kept]}).double()
    loss = nn.functional.cross_entropy(found, labels[kept])
    return {"loss": float(loss), "accuracy": float((found.argmax(-1) == labels[kept]).double().mean())}


def weights(checkpoint: Path) -> dict[str, Tensor]:
    """What the weight file of a checkpoint folder holds."""
    return load_file(checkpoint / "model.safetensors")
