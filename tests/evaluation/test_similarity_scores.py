"""Embeddings are scored by the correlation of their cosines with labels."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.similarity_scores import SimilarityScores, pooled
from fusionlab.evaluation.task_scores import make_scores


class Given(nn.Module):
    """An encoder that returns its input as hidden states."""

    main_input_name = "states"

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor, attention_mask: Tensor | None = None) -> Any:
        return SimpleNamespace(last_hidden_state=self.scale * states)


def batches(masked: bool = True) -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    found = []
    for pairs in (6, 3):
        lengths = torch.randint(1, 6, (2 * pairs,), generator=draw)
        batch = {"states": torch.randn(2 * pairs, 5, 4, generator=draw)}
        if masked:
            batch["attention_mask"] = (torch.arange(5) < lengths[:, None]).long()
        found.append(batch | {"labels": torch.rand(pairs, generator=draw).repeat_interleave(2)})
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("masked", [True, False])
def test_equals_scipy(pooling: Any, masked: bool) -> None:
    """Over batches of different sizes, what scipy computes of cosines that numpy computes."""
    scores = make_scores(Given(), "similarity", pooling=pooling)
    assert isinstance(scores, SimilarityScores)
    scores.keep_examples()
    cosines: list[float] = []
    labels: list[float] = []
    for batch in batches(masked):
        scores.update(Given(), batch)
        states = batch["states"].double().numpy()
        count = batch["attention_mask"].sum(1).tolist() if masked else [5] * len(states)
        rows = [s[0] if pooling == "cls" else s[:n].mean(0) for s, n in zip(states, count, strict=True)]
        for a, b in zip(rows[::2], rows[1::2], strict=True):
            cosines.append(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)))
        labels += batch["labels"][::2].tolist()
    found = scores.compute()
    assert list(found) == ["loss", "spearman", "pearson"]
    assert found["spearman"] == pytest.approx(spearmanr(cosines, labels).statistic, abs=1e-5)
    assert found["pearson"] == pytest.approx(pearsonr(cosines, labels).statistic, abs=1e-5)
    assert found["loss"] == pytest.approx(np.square(np.subtract(cosines, labels)).mean(), abs=1e-5)
    assert set(scores.answers().contributions) == {"loss", "spearman", "pearson"}


def test_embeddings_are_taken_as_they_are() -> None:
    """A model that pools by itself scores as its pooled states do."""
    first, second = SimilarityScores(), SimilarityScores()
    for batch in batches():
        first.update(Given(), batch)
        embedded = pooled(batch["states"], batch["attention_mask"], "mean")
        second.update(Given(), {"states": embedded, "labels": batch["labels"]})
    assert second.compute() == pytest.approx(first.compute())


def test_a_text_without_a_partner_is_refused() -> None:
    (batch, _) = batches()
    with pytest.raises(InputError, match="shape 5 x 5 x 4 for 5 texts; expected an embedding of each"):
        SimilarityScores().update(Given(), {name: value[:5] for name, value in batch.items()})
