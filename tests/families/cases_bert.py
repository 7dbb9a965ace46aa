"""BERT, RoBERTa, XLM-RoBERTa and CamemBERT."""

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertForQuestionAnswering,
    CamembertForSequenceClassification,
    CamembertForTokenClassification,
    CamembertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForQuestionAnswering,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
    XLMRobertaModel,
)

from tests.families.harness import Case

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 40,
    "max_position_embeddings": 32,
}
WITHOUT_RESIDUAL = (
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
    *(
        f"encoder.layer.{layer}.{name}"
        for layer in range(2)
        for name in (
            "attention.output.dense.bias",
            "attention.output.LayerNorm.weight",
            "attention.output.LayerNorm.bias",
            "output.dense.bias",
            "output.LayerNorm.weight",
            "output.LayerNorm.bias",
        )
    ),
    "pooler.dense.weight",
    "pooler.dense.bias",
)
BERT_PREDICTIONS = ("cls.predictions.decoder.bias", "cls.predictions.bias")
ROBERTA_SEQUENCE = ("classifier.dense.bias", "classifier.out_proj.weight", "classifier.out_proj.bias")
ROBERTA_PREDICTIONS = ("lm_head.decoder.bias", "lm_head.bias")
UNTIED = {"tie_word_embeddings": False}

# The output of question answering is no one tensor of logits, so that the check of stored models does not apply.
CASES = [
    Case("bert", lambda: BertModel(BertConfig(**SIZES)), WITHOUT_RESIDUAL, notes=("output",)),
    Case(
        "bert-sequence",
        lambda: BertForSequenceClassification(BertConfig(**SIZES)),
        ("bert.pooler.dense.bias", "classifier.weight", "classifier.bias"),
    ),
    Case("bert-token", lambda: BertForTokenClassification(BertConfig(**SIZES)), ("classifier.bias",)),
    Case(
        "bert-token-relu",
        lambda: BertForTokenClassification(BertConfig(**SIZES, hidden_act="relu")),
        ("classifier.bias",),
    ),
    Case("bert-question", lambda: BertForQuestionAnswering(BertConfig(**SIZES)), ("qa_outputs.bias",), stored=False),
    Case("bert-masked", lambda: BertForMaskedLM(BertConfig(**SIZES)), BERT_PREDICTIONS),
    Case("bert-masked-untied", lambda: BertForMaskedLM(BertConfig(**SIZES, **UNTIED)), BERT_PREDICTIONS),
    Case("roberta", lambda: RobertaModel(RobertaConfig(**SIZES)), WITHOUT_RESIDUAL),
    Case("roberta-sequence", lambda: RobertaForSequenceClassification(RobertaConfig(**SIZES)), ROBERTA_SEQUENCE),
    Case("roberta-token", lambda: RobertaForTokenClassification(RobertaConfig(**SIZES)), ("classifier.bias",)),
    Case(
        "roberta-question",
        lambda: RobertaForQuestionAnswering(RobertaConfig(**SIZES)),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("roberta-masked", lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)), ROBERTA_PREDICTIONS),
    Case("roberta-masked-untied", lambda: RobertaForMaskedLM(RobertaConfig(**SIZES, **UNTIED)), ROBERTA_PREDICTIONS),
    Case("xlm-roberta", lambda: XLMRobertaModel(XLMRobertaConfig(**SIZES)), WITHOUT_RESIDUAL),
    Case(
        "xlm-roberta-sequence",
        lambda: XLMRobertaForSequenceClassification(XLMRobertaConfig(**SIZES)),
        ROBERTA_SEQUENCE,
    ),
    Case(
        "xlm-roberta-token",
        lambda: XLMRobertaForTokenClassification(XLMRobertaConfig(**SIZES)),
        ("classifier.bias",),
    ),
    Case(
        "xlm-roberta-question",
        lambda: XLMRobertaForQuestionAnswering(XLMRobertaConfig(**SIZES)),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("xlm-roberta-masked", lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SIZES)), ROBERTA_PREDICTIONS),
    Case("camembert", lambda: CamembertModel(CamembertConfig(**SIZES)), WITHOUT_RESIDUAL),
    Case(
        "camembert-sequence",
        lambda: CamembertForSequenceClassification(CamembertConfig(**SIZES)),
        ROBERTA_SEQUENCE,
    ),
    Case("camembert-token", lambda: CamembertForTokenClassification(CamembertConfig(**SIZES)), ("classifier.bias",)),
    Case(
        "camembert-question",
        lambda: CamembertForQuestionAnswering(CamembertConfig(**SIZES)),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("camembert-masked", lambda: CamembertForMaskedLM(CamembertConfig(**SIZES)), ROBERTA_PREDICTIONS),
]
