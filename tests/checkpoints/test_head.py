"""A body under a new head: only the head's parameters may be missing or of another shape."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForImageClassification

from fusionlab.checkpoints import load_with_head
from fusionlab.errors import InputError
from tests.checkpoints.small_models import vit

State = dict[str, Tensor]


def changed(folder: Path, change: Callable[[State], object]) -> Path:
    vit().save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_new_head_on_the_body_of_the_file(tmp_path: Path) -> None:
    """Missing or of another size, the head is new and said to be; every number of the body is the file's."""
    body = {name: tensor for name, tensor in vit().state_dict().items() if name.startswith("vit.")}
    assert body
    for name, change, labels in (
        ("kept", lambda state: None, 3),
        ("larger", lambda state: None, 5),
        ("missing", lambda state: [state.pop(f"classifier.{part}") for part in ("weight", "bias")], 3),
    ):
        folder = changed(tmp_path / name, change)
        model, fresh = load_with_head(folder, AutoModelForImageClassification, num_labels=labels)
        assert fresh == ([] if name == "kept" else ["classifier.bias", "classifier.weight"])
        assert model.num_labels == labels
        state = model.state_dict()
        assert all(torch.equal(state[key], tensor) for key, tensor in body.items())


@pytest.mark.parametrize("name", ["vit.embeddings.cls_token", "vit.layernorm.weight"])
def test_a_body_that_is_not_whole_is_refused(tmp_path: Path, name: str) -> None:
    """A parameter that is missing, or of another shape, would be left at random."""
    folder = changed(tmp_path / "missing", lambda state: state.pop(name))
    with pytest.raises(InputError, match=f"lacks the parameter {name}"):
        load_with_head(folder, AutoModelForImageClassification)
    folder = changed(tmp_path / "shape", lambda state: state.update({name: state[name][..., :8].contiguous()}))
    with pytest.raises(InputError, match=f"parameter {name} has shape"):
        load_with_head(folder, AutoModelForImageClassification)
