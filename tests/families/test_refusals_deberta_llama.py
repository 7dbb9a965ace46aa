"""What the descriptions of DeBERTa and of decoders with rotary positions do not cover is refused in one sentence."""

from typing import Any

import pytest
from transformers import Phi3Config

from fusionlab.symmetry import SymmetryError, blueprint_from_config
from tests.families.cases_deberta import BOTH, v1, v2
from tests.families.cases_gpt import gptj, neox
from tests.families.cases_llama import MHA, SIZES


def phi3(share: float) -> Phi3Config:
    """Heads of 8 coordinates, of which positions turn a share."""
    return Phi3Config(**SIZES, **MHA, rope_parameters={"rope_type": "default", "partial_rotary_factor": share})


@pytest.mark.parametrize(
    ("config", "class_name", "told"),
    [
        (v1(talking_head=True), "DebertaModel", "with talking_head is not described"),
        (v2(attention_head_size=4), "DebertaV2Model", "has attention_head_size 4; expected hidden_size over the heads"),
        (
            v2(conv_kernel_size=3, conv_groups=2),
            "DebertaV2Model",
            "has conv_groups 2, which is not described; expected 1",
        ),
        (v2(pooler_hidden_size=16), "DebertaV2ForSequenceClassification", "has pooler_hidden_size 16; expected 24"),
        (v1(pooler_hidden_size=16), "DebertaForSequenceClassification", "has pooler_hidden_size 16; expected 24"),
        (v2(legacy=False, embedding_size=16), "DebertaV2ForMaskedLM", "has embedding_size 16 .*; expected 24"),
        (phi3(0.4), "Phi3ForCausalLM", "rotary positions on 3 coordinates of a head are not described; expected pairs"),
        (phi3(0.1), "Phi3ForCausalLM", "rotary positions on 0 coordinates of a head are not described; expected pairs"),
        (neox(rotary_pct=0.4), "GPTNeoXForCausalLM", "rotary positions on 3 coordinates of a head"),
        (gptj(rotary_dim=3), "GPTJForCausalLM", "rotary positions on 3 coordinates of a head"),
    ],
)
def test_what_is_not_described_is_refused(config: Any, class_name: str, told: str) -> None:
    with pytest.raises(SymmetryError, match=told):
        blueprint_from_config(config, class_name)


@pytest.mark.parametrize(
    ("config", "class_name"),
    [
        (v2(talking_head=True), "DebertaV2Model"),
        (v2(attention_head_size=8), "DebertaV2Model"),
        (v2(conv_groups=2), "DebertaV2Model"),
        (v2(conv_kernel_size=3, conv_groups=1), "DebertaV2Model"),
        (v2(pooler_hidden_size=16), "DebertaV2ForTokenClassification"),
        (v2(pooler_hidden_size=24), "DebertaV2ForSequenceClassification"),
        (v2(legacy=False, embedding_size=24), "DebertaV2ForMaskedLM"),
        (v2(embedding_size=16, **BOTH), "DebertaV2ForMaskedLM"),
        (v2(legacy=False, embedding_size=16), "DebertaV2ForTokenClassification"),
        (phi3(0.25), "Phi3ForCausalLM"),
        (phi3(1.0), "Phi3ForCausalLM"),
        (neox(rotary_pct=0.0), "GPTNeoXForCausalLM"),
        (gptj(rotary_dim=2), "GPTJForCausalLM"),
    ],
)
def test_what_such_options_do_not_change_is_described(config: Any, class_name: str) -> None:
    """The same options where they say nothing, or what is usual; each with spaces in both layers."""
    assert {space.layer for space in blueprint_from_config(config, class_name).spaces.values()} >= {0, 1}
