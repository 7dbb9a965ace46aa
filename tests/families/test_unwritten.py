"""Classes and options of the written families that nobody wrote down: inference takes them as they come."""

import pytest
import torch
from transformers import (
    AlbertForMultipleChoice,
    AlbertModel,
    BartConfig,
    BartModel,
    BeitBackbone,
    BertConfig,
    BertForNextSentencePrediction,
    BertForTokenClassification,
    BertModel,
    CamembertConfig,
    CamembertForCausalLM,
    CLIPForImageClassification,
    DebertaForSequenceClassification,
    DebertaModel,
    DebertaV2ForMaskedLM,
    DebertaV2Model,
    DeiTForImageClassificationWithTeacher,
    Dinov2Backbone,
    Dinov2WithRegistersBackbone,
    DistilBertForMultipleChoice,
    ElectraForCausalLM,
    ElectraModel,
    GPTJForCausalLM,
    MPNetForMultipleChoice,
    MPNetModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    SiglipModel,
    SwinBackbone,
    SwinForImageClassification,
    T5Config,
    T5EncoderModel,
    ViTForImageClassification,
    ViTModel,
    WhisperConfig,
    WhisperForCausalLM,
    XLMRobertaConfig,
    XLMRobertaModel,
)
from transformers.models.bart.modeling_bart import BartEncoder

from fusionlab.symmetry import SymmetryError, blueprint
from tests.families import harness
from tests.families.cases_bert import SIZES
from tests.families.cases_clip import clip_config, siglip_config
from tests.families.cases_deberta import v1, v2
from tests.families.cases_encoders import albert, distilbert, electra, mpnet
from tests.families.cases_gpt import gptj
from tests.families.cases_seq2seq import BART, T5, WHISPER
from tests.families.cases_vision import beit_config, dinov2_config, registers_config, swin_config
from tests.families.cases_vit import deit_config, vit_config
from tests.families.harness import Case
from tests.families.test_families import as_is_and_folded, of
from tests.parts import one_in

MODELS = {
    "albert-multiple-choice": lambda: AlbertForMultipleChoice(albert()),
    "albert-without-pooler": lambda: AlbertModel(albert(), add_pooling_layer=False),
    "bart-encoder": lambda: BartEncoder(BartConfig(**BART)),
    "bart-as-a-decoder": lambda: BartModel(BartConfig(**BART, is_decoder=True)),
    "beit-backbone": lambda: BeitBackbone(beit_config()),
    "bert-decoder": lambda: BertModel(BertConfig(**SIZES, is_decoder=True)),
    "bert-decoder-of-an-encoder": lambda: BertModel(BertConfig(**SIZES, is_decoder=True, add_cross_attention=True)),
    "bert-next-sentence": lambda: BertForNextSentencePrediction(BertConfig(**SIZES)),
    "bert-prelu": lambda: BertForTokenClassification(BertConfig(**SIZES, hidden_act="prelu")),
    "bert-without-pooler": lambda: BertModel(BertConfig(**SIZES), add_pooling_layer=False),
    "camembert-causal": lambda: CamembertForCausalLM(CamembertConfig(**SIZES, is_decoder=True)),
    "clip-without-labels": lambda: CLIPForImageClassification(clip_config(num_labels=0)),
    "deberta-talking-heads": lambda: DebertaModel(v1(talking_head=True)),
    "deberta-v2-grouped-convolution": lambda: DebertaV2Model(v2(conv_kernel_size=3, conv_groups=2)),
    "deit-without-labels": lambda: DeiTForImageClassificationWithTeacher(deit_config(num_labels=0)),
    "dinov2-backbone": lambda: Dinov2Backbone(dinov2_config()),
    "dinov2-registers-backbone": lambda: Dinov2WithRegistersBackbone(registers_config()),
    "distilbert-multiple-choice": lambda: DistilBertForMultipleChoice(distilbert()),
    "electra-causal": lambda: ElectraForCausalLM(electra(is_decoder=True)),
    "electra-decoder": lambda: ElectraModel(electra(is_decoder=True)),
    "mpnet-multiple-choice": lambda: MPNetForMultipleChoice(mpnet()),
    "mpnet-without-pooler": lambda: MPNetModel(mpnet(), add_pooling_layer=False),
    "roberta-decoder": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES, is_decoder=True)),
    "roberta-without-pooler": lambda: RobertaModel(RobertaConfig(**SIZES), add_pooling_layer=False),
    "swin-backbone": lambda: SwinBackbone(swin_config()),
    "swin-without-labels": lambda: SwinForImageClassification(swin_config(num_labels=0)),
    "t5-encoder-that-decodes": lambda: T5EncoderModel(T5Config(**T5, is_decoder=True)),
    "vit-prelu": lambda: ViTModel(vit_config(hidden_act="prelu")),
    "vit-without-labels": lambda: ViTForImageClassification(vit_config(num_labels=0)),
    "vit-without-pooler": lambda: ViTModel(vit_config(), add_pooling_layer=False),
    "whisper-causal": lambda: WhisperForCausalLM(WhisperConfig(**WHISPER)),
    "xlm-roberta-decoder": lambda: XLMRobertaModel(XLMRobertaConfig(**SIZES, is_decoder=True)),
}
# Configs that make models whose own forward fails.
BROKEN = {
    "deberta-narrow-pooler": lambda: DebertaForSequenceClassification(v1(pooler_hidden_size=16)),
    "deberta-v2-narrow-heads": lambda: DebertaV2Model(v2(attention_head_size=4)),
    "deberta-v2-narrow-words": lambda: DebertaV2ForMaskedLM(v2(legacy=False, embedding_size=16)),
    "gptj-odd-rotary": lambda: GPTJForCausalLM(gptj(rotary_dim=3)),
}


CASES = one_in(9, [Case(name, build, ()) for name, build in MODELS.items()])


@of(CASES)
@as_is_and_folded
def test_a_random_alignment_changes_no_output(case: Case, folded: bool) -> None:
    harness.check_random_alignment(case, folded)


@of(CASES)
def test_what_a_transformer_has_is_found(case: Case) -> None:
    """What is exact may be little: these have heads, values in them, and units."""
    roles = {space.role for space in harness.described(case)[1].spaces.values()}
    assert roles >= {"heads", "attention.vo", "ffn"}


@pytest.mark.parametrize("name", one_in(2, BROKEN))
@torch.no_grad()
def test_a_model_that_does_not_run_is_refused(name: str) -> None:
    model = BROKEN[name]()
    with pytest.raises(RuntimeError):
        model(input_ids=torch.ones(2, 5, dtype=torch.long))
    with pytest.raises(SymmetryError, match="cannot be traced"):
        blueprint(model)


def test_towers_without_what_makes_an_embedding_are_refused() -> None:
    with pytest.raises(SymmetryError, match="cannot be traced"):
        blueprint(SiglipModel(siglip_config(vision_use_head=False)))
