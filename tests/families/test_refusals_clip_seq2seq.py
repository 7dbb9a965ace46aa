"""What the descriptions of CLIP, SigLIP, T5, BART and Whisper do not cover is refused in one sentence."""

from typing import Any

import pytest
from transformers import BartConfig, T5Config, WhisperConfig

from fusionlab.symmetry import SymmetryError, blueprint_from_config
from tests.families.cases_clip import clip_config, siglip_config
from tests.families.cases_seq2seq import BART, T5, WHISPER


@pytest.mark.parametrize(
    ("config", "class_name", "told"),
    [
        (clip_config(), "CLIPSegModel", "model class CLIPSegModel: fusionlab knows CLIPModel, "),
        (clip_config(num_labels=0), "CLIPForImageClassification", "expected num_labels > 0"),
        (siglip_config(num_labels=0), "SiglipForImageClassification", "expected num_labels > 0"),
        (siglip_config(vision_use_head=False), "SiglipModel", "expected vision_use_head true"),
        (T5Config(**T5), "T5Stack", "fusionlab knows T5Model, "),
        (T5Config(**T5, is_decoder=True), "T5EncoderModel", "expected is_decoder false"),
        (BartConfig(**BART), "BartEncoder", "fusionlab knows BartModel, "),
        (BartConfig(**BART, is_decoder=True), "BartModel", "expected is_decoder false"),
        (WhisperConfig(**WHISPER), "WhisperForCausalLM", "fusionlab knows WhisperModel, "),
    ],
)
def test_what_is_not_described_is_refused(config: Any, class_name: str, told: str) -> None:
    with pytest.raises(SymmetryError, match=told):
        blueprint_from_config(config, class_name)
