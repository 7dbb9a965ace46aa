"""Scores of embeddings: how well their cosines follow numbers that people gave to pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics.regression import PearsonCorrCoef, SpearmanCorrCoef

from fusionlab.errors import InputError
from fusionlab.evaluation.scores import RegressionScores
from fusionlab.forward import LABELS, logits

Pooling = Literal["mean", "cls"]
MASK = "attention_mask"


class SimilarityScores(RegressionScores):
    """Spearman and Pearson correlation of the cosines of pairs of embeddings with their labels, and the squared error.

    As the published tables of sentence embeddings have it (Reimers and Gurevych, "Sentence-BERT", 2019), Spearman's
    comes first. Layers of a sentence-transformers folder behind its pooling are not part of the model, so not of these.

    Args:
        pooling: ``mean`` of the tokens that the attention mask lets count, or the first one (``cls``). Models that give
            one vector for each text are taken as they are.
    """

    def __init__(self, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.metrics = nn.ModuleDict({"spearman": SpearmanCorrCoef(), "pearson": PearsonCorrCoef()})
        self.pooling = pooling

    @torch.no_grad()
    def update(self, model: nn.Module, batch: Mapping[str, Tensor]) -> None:
        """Score a model on a batch of pairs.

        Args:
            model: gives hidden states of shape ``(2 pairs, tokens, width)``, or embeddings ``(2 pairs, width)``.
            batch: its inputs, the two texts of a pair one after the other, and ``labels`` of shape ``(2 pairs,)``,
                the number of a pair for both its texts.

        Raises:
            InputError: a model that gives neither, or texts without partners.
        """
        found = logits(model, batch).float()
        if found.ndim not in (2, 3) or len(found) % 2 or len(found) != len(batch[LABELS]):
            raise InputError(
                f"the model gives outputs of shape {' x '.join(map(str, found.shape))} for {len(batch[LABELS])} texts; "
                f"expected an embedding of each, or hidden states of its tokens, as of an encoder without a head"
            )
        embeddings = pooled(found, batch.get(MASK), self.pooling) if found.ndim == 3 else found
        self.add(functional.cosine_similarity(embeddings[::2], embeddings[1::2]), batch[LABELS][::2])


def pooled(hidden: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """One embedding for each text.

    Args:
        hidden: states of its tokens, shape ``(texts, tokens, width)``.
        mask: 1 for tokens and 0 for padding, shape ``(texts, tokens)``; all are tokens if None.
        pooling: see `SimilarityScores`.

    Returns:
        Shape ``(texts, width)``.
    """
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(1)
    counts = mask.to(hidden.dtype)[..., None]
    return (hidden * counts).sum(1) / counts.sum(1).clamp(min=1)
