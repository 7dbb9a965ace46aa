"""What models share: a small one of their structure, by which all of them are described."""

import os

import pytest
from torch import nn

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.infer import models
from tests.symmetry.fields import every_field
from tests.symmetry.infer.test_kept import bloom


def test_models_of_two_sizes_have_one_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is traced once, and the larger one gets what it gets alone; another option makes another small model."""
    monkeypatch.setenv("FUSIONLAB_CACHE", os.devnull)
    monkeypatch.setattr(models, "KNOWN", {})
    traced: list[str] = []
    found = models.infer

    def counted(model: nn.Module, *arguments: object, **more: object) -> Blueprint:
        traced.append(type(model).__name__)
        return found(model, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "infer", counted)
    models.inferred(bloom())
    larger = models.inferred(bloom(hidden_size=60, n_head=5))
    assert traced == ["BloomForCausalLM"]
    models.inferred(bloom(tie_word_embeddings=False))
    assert traced == ["BloomForCausalLM"] * 2
    monkeypatch.setattr(models, "KNOWN", {})
    alone = models.inferred(bloom(hidden_size=60, n_head=5))
    assert len(traced) == 3
    assert every_field(alone) == every_field(larger)
