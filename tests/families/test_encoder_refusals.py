"""What the descriptions of post-norm encoders do not cover is refused in one sentence."""

import pytest
from torch import nn
from transformers import (
    AlbertForMultipleChoice,
    AlbertModel,
    BertConfig,
    BertForNextSentencePrediction,
    BertForTokenClassification,
    BertModel,
    CamembertConfig,
    CamembertForCausalLM,
    DistilBertForMultipleChoice,
    ElectraForCausalLM,
    ElectraModel,
    MPNetForMultipleChoice,
    MPNetModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from fusionlab.symmetry import SymmetryError, blueprint
from tests.families.cases_bert import SIZES
from tests.families.cases_encoders import albert, distilbert, electra, mpnet

OTHER_CLASSES = {
    "bert": lambda: BertForNextSentencePrediction(BertConfig(**SIZES)),
    "camembert": lambda: CamembertForCausalLM(CamembertConfig(**SIZES)),
    "distilbert": lambda: DistilBertForMultipleChoice(distilbert()),
    "electra": lambda: ElectraForCausalLM(electra()),
    "mpnet": lambda: MPNetForMultipleChoice(mpnet()),
    "albert": lambda: AlbertForMultipleChoice(albert()),
}
DECODERS = {
    "bert": lambda: BertModel(BertConfig(**SIZES, is_decoder=True)),
    "bert-cross": lambda: BertModel(BertConfig(**SIZES, is_decoder=True, add_cross_attention=True)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES, is_decoder=True)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**SIZES, is_decoder=True)),
    "electra": lambda: ElectraModel(electra(is_decoder=True)),
}
WITHOUT_POOLER = {
    "bert": lambda: BertModel(BertConfig(**SIZES), add_pooling_layer=False),
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZES), add_pooling_layer=False),
    "mpnet": lambda: MPNetModel(mpnet(), add_pooling_layer=False),
    "albert": lambda: AlbertModel(albert(), add_pooling_layer=False),
}


def refusal(model: nn.Module) -> str:
    with pytest.raises(SymmetryError) as refused:
        blueprint(model)
    return str(refused.value)


@pytest.mark.parametrize("name", OTHER_CLASSES)
def test_other_classes_are_refused(name: str) -> None:
    assert "no description of the model class" in refusal(OTHER_CLASSES[name]())


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_are_refused(name: str) -> None:
    assert "expected is_decoder false" in refusal(DECODERS[name]())


@pytest.mark.parametrize("name", WITHOUT_POOLER)
def test_a_bare_encoder_without_its_pooler_is_refused(name: str) -> None:
    assert "lacks the parameter 'pooler." in refusal(WITHOUT_POOLER[name]())


def test_an_activation_with_parameters_is_refused() -> None:
    model = BertForTokenClassification(BertConfig(**SIZES, hidden_act="prelu"))
    assert "intermediate_act_fn.weight" in refusal(model)
