"""Models and data of the benchmark on a GPU: random ones of a shape, and trained ones, a few minutes at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab import configs
from fusionlab.data import Images, LanguageModelling
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.tasks import CausalLanguageModelling, ImageClassification

# Layers, heads and width.
VITS = {"vit_7_12_384": (7, 12, 384), "vit_6_8_256": (6, 8, 256)}
GPT2 = {"gpt2_6_8_512": (6, 8, 512)}
# What --small makes of any of them.
SMALL = (2, 2, 16)


def deberta(small: bool) -> DebertaV2ForSequenceClassification:
    """A DeBERTa of the shape of microsoft/deberta-v3-large, its weights drawn by transformers."""
    shape: dict[str, Any] = (
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
        if small
        else {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
              "vocab_size": 128_100}
    )  # fmt: skip
    fields: dict[str, Any] = {
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
        "max_position_embeddings": 512,
    }  # fmt: skip
    return DebertaV2ForSequenceClassification(DebertaV2Config(**shape, **fields))


def vit(sizes: tuple[int, int, int]) -> ViTForImageClassification:
    layers, heads, width = sizes
    fields: dict[str, Any] = {
        "image_size": 32, "patch_size": 4, "num_labels": 10, "num_hidden_layers": layers, "num_attention_heads": heads,
        "hidden_size": width, "intermediate_size": 4 * width,
    }  # fmt: skip
    return ViTForImageClassification(ViTConfig(**fields))


def gpt2(sizes: tuple[int, int, int]) -> GPT2LMHeadModel:
    layers, heads, width = sizes
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=259, n_positions=256, n_layer=layers, n_head=heads, n_embd=width, bos_token_id=257,
                   eos_token_id=257)
    )  # fmt: skip


def near(model: nn.Module, description: Blueprint, seed: int = 1) -> dict[str, Tensor]:
    """A model's parameters in another basis, with noise of a tenth of each one's size."""
    generator = torch.Generator().manual_seed(seed)
    moved = Alignment.random(description, generator).apply(model.state_dict())
    noisy = {}
    for name, tensor in moved.items():
        noise = torch.randn(tensor.shape, generator=generator)
        noisy[name] = tensor + 0.1 * tensor.std(correction=0) * noise if tensor.is_floating_point() else tensor
    return noisy


class Stopping(Callback):
    """Stops a fit at the first end of an epoch after some minutes; what comes after it is what would have come.

    Lightning's Timer remembers in checkpoints what earlier fits took.
    """

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = time.monotonic() >= self._end


@dataclass(frozen=True)
class Training:
    """An end model that is trained, as long as it takes, some minutes at a time.

    Attributes:
        config: shipped, of `fusionlab fit`; its model's sizes are others.
        sizes: layers, heads and width.
        data: where the images or texts lie, with the fields of the data module that go with them.
        epochs: to train for; the config's own if None.
        seed: of weights and order.
        fields: further ones of the model's config that are not those of the shipped one.
        precision: of the Trainer; on a GPU the config's own if None, and elsewhere float32.
    """

    config: str
    sizes: tuple[int, int, int]
    data: Mapping[str, Any]
    epochs: int | None
    seed: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    precision: str | None = None

    @property
    def is_text(self) -> bool:
        return "gpt2" in self.config

    def goes_on(self, folder: Path, accelerator: str, minutes: float) -> bool:
        """Train for some minutes from where it was left; true once the model is in its folder.

        Args:
            folder: of this end model.
            accelerator: of the Trainer.
            minutes: after which a state is kept.
        """
        if (folder / "model").exists():
            return True
        seed_everything(self.seed, verbose=False)
        given = yaml.safe_load(configs.resolve(self.config).read_text(encoding="utf-8"))
        task, data = self._task(given["model"]["init_args"]), self.module()
        last = folder / "last.ckpt"
        own = given["trainer"].get("precision", "32-true") if accelerator == "gpu" else "32-true"
        precision: Any = self.precision or own
        trainer = Trainer(
            max_epochs=self.epochs or given["trainer"]["max_epochs"], accelerator=accelerator, devices=1,
            precision=precision, gradient_clip_val=given["trainer"]["gradient_clip_val"], logger=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
            callbacks=[
                Stopping(minutes),
                ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False),
            ],
        )  # fmt: skip
        trainer.fit(task, datamodule=data, ckpt_path=str(last) if last.exists() else None)
        if trainer.current_epoch < (trainer.max_epochs or 0):
            return False
        task.model.save_pretrained(folder / "model")
        return True

    def module(self) -> Any:
        """The data module."""
        given = yaml.safe_load(configs.resolve(self.config).read_text(encoding="utf-8"))["data"]["init_args"]
        kind: Any = LanguageModelling if self.is_text else Images
        return kind(**{**given, "num_workers": 0, **self.data})

    def load(self, folder: Path) -> nn.Module:
        """The trained model."""
        kind = AutoModelForCausalLM if self.is_text else AutoModelForImageClassification
        return kind.from_pretrained(folder / "model").eval()

    def _task(self, given: dict[str, Any]) -> Any:
        layers, heads, width = self.sizes
        if self.is_text:
            shape = {"n_layer": layers, "n_head": heads, "n_embd": width}
            return CausalLanguageModelling(**{**given, "model": {**given["model"], **shape, **self.fields}})
        shape = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": width}
        shape["intermediate_size"] = 4 * width
        return ImageClassification(**{**given, "model": {**given["model"], **shape, **self.fields}})
