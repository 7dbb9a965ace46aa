"""A model runs a module at a time as it runs with all its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from fusionlab.checkpoints.weightless import Weightless, weightless
from fusionlab.evaluation.preservation import samples
from fusionlab.forward import logits
from fusionlab.streaming.running import logits_of
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.inputs import Input

COMMON: dict[str, Any] = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 24, "intermediate_size": 40, "vocab_size": 50,
}  # fmt: skip
CLASSES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": COMMON,
    "BertForSequenceClassification": COMMON,
    "GPT2ForSequenceClassification": {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 50, "num_labels": 3},
    "ViTForImageClassification": COMMON | {"image_size": 8, "patch_size": 4},
    "T5ForConditionalGeneration": {
        "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": 50,
    },
}  # fmt: skip


def without_weights(model: transformers.PreTrainedModel, folder: Path, missing: str | None = None) -> Weightless | None:
    """The model that is described by the config and shapes of another one."""
    first: dict[int, str] = {}
    shapes = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if first.setdefault(id(tensor), name) == name and name != missing:
            shapes[name] = tuple(tensor.shape)
    config = json.loads(model.config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]}
    return weightless(config, folder, shapes)


def made(name: str) -> transformers.PreTrainedModel:
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    return cls(cls.config_class(**CLASSES[name])).eval()


@pytest.mark.parametrize("name", CLASSES)
def test_logits_are_those_of_the_whole_model(name: str, tmp_path: Path) -> None:
    """In float64, buffers that are not stored included; nothing is left in memory afterwards."""
    model = made(name)
    found = without_weights(model, tmp_path)
    assert found is not None
    assert all(parameter.is_meta for parameter in found.model.parameters())
    state = model.state_dict()
    inputs = blueprint(model).inputs
    seen: list[str] = []

    def provide(parameter: str) -> Tensor:
        seen.append(parameter)
        return state[found.names[parameter]]

    result = logits_of(found.model, provide, inputs, seed=3, count=2)
    with torch.no_grad(), InFloat64():
        expected = torch.cat([logits(model.double(), sample) for sample in samples(model, inputs, seed=3, count=2)])
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)
    assert {found.names[name] for name in seen} == set(found.names.values())
    assert all(parameter.is_meta for parameter in found.model.parameters())


def test_files_with_other_parameters_are_none_of_the_class(tmp_path: Path) -> None:
    """A parameter that is missing is found before anything runs."""
    model = made("BertForSequenceClassification")
    assert without_weights(model, tmp_path) is not None
    assert without_weights(model, tmp_path, "classifier.bias") is None


class Reads(nn.Module):
    """Reads a parameter of another module, which is not running."""

    main_input_name = "x"

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.inner.weight


def test_modules_that_read_one_another_do_not_run() -> None:
    """No logits, rather than those of a model without weights."""
    with pytest.raises(RuntimeError, match="do not run by themselves"):
        logits_of(Reads(), lambda _: torch.ones(3, 3), [Input("x", (3,))], 0, 1)
