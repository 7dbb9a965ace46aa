"""ELECTRA: BERT's encoder with embeddings of their own width, as discriminator or generator (Clark et al., 2020).

Where embeddings are narrower than the encoder, their LayerNorm is read by the projection between the two alone: its
gain can be folded there, and then the embedding space admits rotations.
"""

from typing import Any

from fusionlab.symmetry.builder import BlueprintBuilder
from tests.symmetry.written.bert import (
    HEADS,
    classification_head,
    encoder_layer,
    post_norm_stream,
    prediction_units,
    refuse_decoder,
)
from tests.symmetry.written.registry import architecture, class_head


@architecture("electra")
def electra(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe an ELECTRA model."""
    head = class_head(class_name, "Electra", {**HEADS, "ForPreTraining": "discriminator"})
    refuse_decoder(config)
    prefix = "" if head == "none" else "electra."
    projected = config.embedding_size != config.hidden_size
    tied = head == "masked" and config.tie_word_embeddings

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    narrow = b.stream("embedding", config.embedding_size, norm="layer", tied=tied) if projected else None
    residual = post_norm_stream(b, config.hidden_size, is_output=head == "none")
    embedding = narrow if projected else residual
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        b.embedding(f"{prefix}embeddings.{table}", writes=embedding)
    normed = b.norm(f"{prefix}embeddings.LayerNorm", embedding)
    if projected:
        b.linear(f"{prefix}embeddings_project", reads=normed, writes=residual)
    for layer in range(config.num_hidden_layers):
        encoder_layer(b, f"{prefix}encoder.layer.{layer}", layer, config, residual)

    if head == "masked":
        hidden = prediction_units(b, embedding, config.embedding_size, tied)
        b.linear("generator_predictions.dense", reads=residual, writes=hidden)
        normed = b.norm("generator_predictions.LayerNorm", hidden)
        b.linear("generator_lm_head", reads=normed, writes=None)
    elif head == "discriminator":
        b.linear("discriminator_predictions.dense", reads=residual, writes=None)
        b.linear("discriminator_predictions.dense_prediction", reads=None, writes=None)
    else:
        classification_head(b, head, residual)
