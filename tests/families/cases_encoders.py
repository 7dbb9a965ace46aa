"""DistilBERT, ELECTRA, MPNet and ALBERT."""

from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForQuestionAnswering,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForQuestionAnswering,
    MPNetForSequenceClassification,
    MPNetForTokenClassification,
    MPNetModel,
)

from tests.families.cases_bert import (
    ROBERTA_PREDICTIONS,
    ROBERTA_SEQUENCE,
    SIZES,
    UNTIED,
    WITHOUT_RESIDUAL,
)
from tests.families.harness import Case

LAYERS = range(2)


def distilbert(**changes: object) -> DistilBertConfig:
    return DistilBertConfig(
        dim=24, n_layers=2, n_heads=3, hidden_dim=20, vocab_size=40, max_position_embeddings=32, **changes
    )


def electra(**changes: object) -> ElectraConfig:
    return ElectraConfig(**{**SIZES, "embedding_size": 16, **changes})


def mpnet(**changes: object) -> MPNetConfig:
    return MPNetConfig(**SIZES, **changes)


def albert(**changes: object) -> AlbertConfig:
    return AlbertConfig(**{**SIZES, "embedding_size": 16, **changes})


def albert_without_residual(*layers: str) -> tuple[str, ...]:
    return (
        "encoder.embedding_hidden_mapping_in.bias",
        *(
            f"encoder.albert_layer_groups.{layer}.{name}"
            for layer in layers
            for name in (
                "attention.dense.bias",
                "attention.LayerNorm.weight",
                "attention.LayerNorm.bias",
                "ffn_output.bias",
                "full_layer_layer_norm.weight",
                "full_layer_layer_norm.bias",
            )
        ),
        "pooler.weight",
        "pooler.bias",
    )


# The output of question answering is no one tensor of logits, so that the check of stored models does not apply.
CASES = [
    Case(
        "distilbert",
        lambda: DistilBertModel(distilbert()),
        (
            "embeddings.word_embeddings.weight",
            "embeddings.position_embeddings.weight",
            "embeddings.LayerNorm.weight",
            "embeddings.LayerNorm.bias",
            *(
                f"transformer.layer.{layer}.{name}"
                for layer in LAYERS
                for name in (
                    "attention.out_lin.bias",
                    "sa_layer_norm.weight",
                    "sa_layer_norm.bias",
                    "ffn.lin2.bias",
                    "output_layer_norm.weight",
                    "output_layer_norm.bias",
                )
            ),
        ),
        notes=("output",),
    ),
    Case(
        "distilbert-sequence",
        lambda: DistilBertForSequenceClassification(distilbert()),
        ("pre_classifier.bias", "classifier.weight", "classifier.bias"),
    ),
    Case("distilbert-token", lambda: DistilBertForTokenClassification(distilbert()), ("classifier.bias",)),
    Case(
        "distilbert-token-relu",
        lambda: DistilBertForTokenClassification(distilbert(activation="relu", sinusoidal_pos_embds=True)),
        ("classifier.bias",),
    ),
    Case(
        "distilbert-question",
        lambda: DistilBertForQuestionAnswering(distilbert()),
        ("qa_outputs.bias",),
        stored=False,
    ),
    Case("distilbert-masked", lambda: DistilBertForMaskedLM(distilbert()), ("vocab_projector.bias",)),
    Case("distilbert-masked-untied", lambda: DistilBertForMaskedLM(distilbert(**UNTIED)), ("vocab_projector.bias",)),
    Case(
        "electra",
        lambda: ElectraModel(electra()),
        ("embeddings_project.bias", *(name for name in WITHOUT_RESIDUAL if name.startswith("encoder"))),
        notes=("output",),
    ),
    Case(
        "electra-same-width",
        lambda: ElectraModel(electra(embedding_size=24)),
        tuple(name for name in WITHOUT_RESIDUAL if not name.startswith("pooler")),
    ),
    Case(
        "electra-discriminator",
        lambda: ElectraForPreTraining(electra()),
        (
            "discriminator_predictions.dense.bias",
            "discriminator_predictions.dense_prediction.weight",
            "discriminator_predictions.dense_prediction.bias",
        ),
    ),
    Case("electra-sequence", lambda: ElectraForSequenceClassification(electra()), ROBERTA_SEQUENCE),
    Case("electra-token", lambda: ElectraForTokenClassification(electra()), ("classifier.bias",)),
    Case(
        "electra-token-same-width",
        lambda: ElectraForTokenClassification(electra(embedding_size=24)),
        ("classifier.bias",),
    ),
    Case("electra-question", lambda: ElectraForQuestionAnswering(electra()), ("qa_outputs.bias",), stored=False),
    Case(
        "electra-masked",
        lambda: ElectraForMaskedLM(electra()),
        ("generator_lm_head.bias",),
    ),
    Case(
        "electra-masked-same-width",
        lambda: ElectraForMaskedLM(electra(embedding_size=24)),
        ("generator_lm_head.bias",),
    ),
    Case("electra-masked-untied", lambda: ElectraForMaskedLM(electra(**UNTIED)), ("generator_lm_head.bias",)),
    Case(
        "mpnet",
        lambda: MPNetModel(mpnet()),
        (
            *(name for name in WITHOUT_RESIDUAL if name.startswith("embeddings") and "token_type" not in name),
            *(
                f"encoder.layer.{layer}.{name}"
                for layer in LAYERS
                for name in (
                    "attention.attn.o.bias",
                    "attention.LayerNorm.weight",
                    "attention.LayerNorm.bias",
                    "output.dense.bias",
                    "output.LayerNorm.weight",
                    "output.LayerNorm.bias",
                )
            ),
            "pooler.dense.weight",
            "pooler.dense.bias",
        ),
        notes=("output",),
    ),
    Case("mpnet-sequence", lambda: MPNetForSequenceClassification(mpnet()), ROBERTA_SEQUENCE),
    Case("mpnet-token", lambda: MPNetForTokenClassification(mpnet()), ("classifier.bias",)),
    Case("mpnet-question", lambda: MPNetForQuestionAnswering(mpnet()), ("qa_outputs.bias",), stored=False),
    Case("mpnet-masked", lambda: MPNetForMaskedLM(mpnet()), ROBERTA_PREDICTIONS),
    Case("mpnet-masked-untied", lambda: MPNetForMaskedLM(mpnet(**UNTIED)), ROBERTA_PREDICTIONS),
    Case(
        "albert",
        lambda: AlbertModel(albert()),
        albert_without_residual("0.albert_layers.0"),
        notes=("output",),
    ),
    Case(
        "albert-groups",
        lambda: AlbertModel(albert(num_hidden_layers=3, num_hidden_groups=2, inner_group_num=2)),
        albert_without_residual("0.albert_layers.0", "0.albert_layers.1", "1.albert_layers.0", "1.albert_layers.1"),
    ),
    Case(
        "albert-sequence",
        lambda: AlbertForSequenceClassification(albert()),
        ("albert.pooler.bias", "classifier.weight", "classifier.bias"),
    ),
    Case("albert-token", lambda: AlbertForTokenClassification(albert()), ("classifier.bias",)),
    Case(
        "albert-token-groups",
        lambda: AlbertForTokenClassification(
            albert(num_hidden_layers=3, num_hidden_groups=2, inner_group_num=2, hidden_act="relu")
        ),
        ("classifier.bias",),
    ),
    Case("albert-question", lambda: AlbertForQuestionAnswering(albert()), ("qa_outputs.bias",), stored=False),
    Case(
        "albert-masked",
        lambda: AlbertForMaskedLM(albert()),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
    Case(
        "albert-masked-untied",
        lambda: AlbertForMaskedLM(albert(**UNTIED)),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
]
