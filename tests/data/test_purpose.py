"""What data are for a model: sizes of images and lengths of texts, by its config."""

from pathlib import Path

import pytest
from transformers import (
    CLIPConfig,
    CLIPForImageClassification,
    CLIPTextConfig,
    CLIPVisionConfig,
    MptConfig,
    MptForCausalLM,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab import checkpoints
from fusionlab.data.purpose import head_of

WIDTH = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
EYE = {**WIDTH, "image_size": 8, "patch_size": 4, "num_channels": 1}


@pytest.mark.parametrize(
    "model",
    [
        ViTForImageClassification(ViTConfig(**EYE, num_labels=2)),
        CLIPForImageClassification(
            CLIPConfig(
                text_config=CLIPTextConfig(**WIDTH, vocab_size=9).to_dict(),
                vision_config=CLIPVisionConfig(**EYE).to_dict(),
                num_labels=2,
            )
        ),
    ],
    ids=["one config", "a config of several parts"],
)
def test_images_have_the_size_of_the_config(model: PreTrainedModel, tmp_path: Path) -> None:
    """Where no preprocessor lies beside the model."""
    checkpoints.save(model.eval(), tmp_path / "model")
    assert head_of(checkpoints.read(tmp_path / "model")).image_options() == {"image_size": 8, "channels": 1}


def test_texts_are_no_longer_than_positions_reach(tmp_path: Path) -> None:
    """Two fewer, since some models keep as many for padding."""
    config = MptConfig(vocab_size=9, d_model=8, n_heads=2, n_layers=1, max_seq_len=20)
    checkpoints.save(MptForCausalLM(config).eval(), tmp_path / "model")
    assert head_of(checkpoints.read(tmp_path / "model")).max_length() == 18
