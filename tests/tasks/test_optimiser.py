"""The optimiser: what is decayed, and how the learning rate goes."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    CanineConfig,
    ConvBertConfig,
    ConvNextV2Config,
    Dinov2WithRegistersConfig,
    LayoutLMConfig,
    OpenAIGPTConfig,
    PretrainedConfig,
    ProphetNetConfig,
    XLNetConfig,
)

from fusionlab.errors import InputError
from fusionlab.tasks import CausalLanguageModelling, FineTuning, ImageClassification, SequenceClassification
from tests.tasks.sample import bert
from tests.tasks.test_image_classification import VIT

GPT2 = {"model_type": "gpt2", "vocab_size": 200, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
DEBERTA = bert(model_type="deberta-v2", relative_attention=True, pos_att_type=["c2p"], max_relative_positions=4)
CASES: Mapping[str, tuple[Callable[[], FineTuning], set[str]]] = {
    "vit": (lambda: ImageClassification(VIT, 10), {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"}),
    "bert": (lambda: SequenceClassification(bert(), num_classes=2), {"bert.embeddings.position_embeddings.weight"}),
    "deberta": (
        lambda: SequenceClassification(DEBERTA, num_classes=2),
        {"deberta.embeddings.position_embeddings.weight", "deberta.encoder.rel_embeddings.weight"},
    ),
    "gpt2": (lambda: CausalLanguageModelling(GPT2), {"transformer.wpe.weight"}),
}
# Parameters with two dimensions or more that stand for a bias, a gain, a token or a place.
SPECIAL: Mapping[str, tuple[PretrainedConfig, set[str]]] = {
    "convnextv2": (ConvNextV2Config(depths=[1, 1, 1, 1]), {"grn.weight", "grn.bias"}),
    "dinov2_with_registers": (
        Dinov2WithRegistersConfig(num_hidden_layers=1),
        {"register_tokens", "cls_token", "mask_token", "position_embeddings"},
    ),
    "openai-gpt": (OpenAIGPTConfig(n_layer=1), {"positions_embed.weight"}),
    "canine": (CanineConfig(num_hidden_layers=1), {"char_position_embeddings.weight"}),
    "xlnet": (XLNetConfig(n_layer=1), {"r_w_bias", "r_r_bias", "r_s_bias", "mask_emb"}),
    "layoutlm": (
        LayoutLMConfig(num_hidden_layers=1),
        {"position_embeddings.weight", *(f"{side}_position_embeddings.weight" for side in "xyhw")},
    ),
    "convbert": (ConvBertConfig(num_hidden_layers=1), {"position_embeddings.weight", "key_conv_attn_layer.bias"}),
    "prophetnet": (
        ProphetNetConfig(num_encoder_layers=1, num_decoder_layers=1),
        {"position_embeddings.weight", "relative_pos_embeddings.weight"},
    ),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_tables_and_biases_of_other_models_are_not_decayed(kind: str) -> None:
    """Whatever they are called and however many dimensions they have; no other matrix is left out."""
    config, special = SPECIAL[kind]
    task = ImageClassification(VIT, 10)
    with torch.device("meta"):
        task.model = model = AutoModel.from_config(config)
    _, kept = task._parameter_groups()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {names[id(parameter)] for parameter in kept["params"] if parameter.ndim > 1}
    ends = {next((end for end in special if f".{name}".endswith(f".{end}")), name) for name in found}
    assert ends == special


@pytest.mark.parametrize("name", CASES)
def test_only_matrices_are_decayed(name: str) -> None:
    """Not decayed are single vectors (biases, gains) and, of everything else, special tokens and position tables."""
    build, special = CASES[name]
    task = build()
    decayed, kept = task._parameter_groups()
    names = {id(parameter): name for name, parameter in task.model.named_parameters()}
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
    assert "weight_decay" not in decayed
    assert kept["weight_decay"] == 0
    assert all(parameter.ndim > 1 for parameter in decayed["params"])
    assert {names[id(parameter)] for parameter in kept["params"] if parameter.ndim > 1} == special


def rates(steps: float, **training: Any) -> list[float]:
    """The learning rate of each step, and after the last."""
    task = SequenceClassification(bert(), num_classes=2, **training)
    task._trainer = SimpleNamespace(estimated_stepping_batches=steps)  # type: ignore[assignment]
    found: Any = task.configure_optimizers()
    optimizer, scheduler = found["optimizer"], found["lr_scheduler"]["scheduler"]
    assert found["lr_scheduler"]["interval"] == "step"
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(int(steps)):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    ("schedule", "middle", "end"), [("linear", 0.5, 0.0), ("cosine", 0.5, 0.0), ("constant", 1.0, 1.0)]
)
def test_the_rate_rises_then_falls(schedule: str, middle: float, end: float) -> None:
    """Of 100 steps 6 rise from 0 to the peak; half way through the others, and at the end, it is what the name says."""
    found = rates(100, learning_rate=4.0, schedule=schedule)
    assert [found[step] for step in (0, 3, 6)] == pytest.approx([0, 2, 4])
    assert found[53] == pytest.approx(4 * middle)
    assert found[100] == pytest.approx(4 * end, abs=1e-9)


def test_linear_is_linear() -> None:
    """Every step of the way down is as long as any other."""
    found = rates(20, learning_rate=1.0, warmup_ratio=0.25, schedule="linear")
    assert found == pytest.approx([*(step / 5 for step in range(5)), *(1 - step / 15 for step in range(16))])


def test_a_schedule_needs_an_end() -> None:
    """Training without an end, and on a stream (-1), is refused in one sentence, unless the rate never changes."""
    for steps in (float("inf"), -1):
        with pytest.raises(InputError, match=r"needs an end: set trainer\.max_steps \(trainer\.max_epochs is enough"):
            rates(steps)
        with pytest.raises(InputError, match="needs an end"):
            rates(steps, schedule="constant")
    assert rates(-1, learning_rate=4.0, schedule="constant", warmup_ratio=0.0) == [4.0]


def test_a_schedule_that_there_is_none_of() -> None:
    with pytest.raises(InputError, match="schedule is 'step', but one of cosine, linear, constant was expected"):
        ImageClassification(VIT, 10, schedule="step")  # type: ignore[arg-type]
