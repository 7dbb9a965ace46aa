"""Scores of answers, beside SQuAD's in torchmetrics and the loss that transformers gives."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.text import SQuAD
from transformers import (
    BartConfig,
    BartForQuestionAnswering,
    BertConfig,
    BertForQuestionAnswering,
    ViltConfig,
    ViltForQuestionAnswering,
)

from fusionlab.errors import InputError
from fusionlab.evaluation.answer_scores import AnswerScores, best_spans
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.model_index import hub_task
from fusionlab.evaluation.task_scores import make_scores, task_of
from fusionlab.forward import answers_questions, logits, main_output
from fusionlab.statistics.entropy import mean_entropy
from fusionlab.statistics.likelihood import scores

TOKENS = 9


def model(seed: int = 0) -> BertForQuestionAnswering:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForQuestionAnswering(BertConfig(vocab_size=20, initializer_range=1.0, **sizes)).eval()


def batch(padded: int = 0) -> dict[str, Tensor]:
    """Three rows, the last of which has some padding."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 20, (3, TOKENS), generator=generator)
    mask = torch.ones_like(tokens)
    mask[-1, TOKENS - padded :] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": torch.tensor([[2, 4], [0, 0], [1, 1]])}


def by_hand(output: Tensor, longest: int) -> list[list[int]]:
    """The best pair of each row, over all of them."""
    every = [(first, last) for first in range(TOKENS) for last in range(first, min(TOKENS, first + longest))]
    return [list(max(every, key=lambda pair: float(row[0, pair[0]] + row[1, pair[1]]))) for row in output]


def test_the_best_answers() -> None:
    """Beside a search over all of them; none is too long or ends before it begins."""
    output = torch.randn(40, 2, TOKENS, generator=torch.Generator().manual_seed(0))
    for longest in (1, 3, TOKENS, 30):
        assert best_spans(output, longest).tolist() == by_hand(output, longest)
    assert best_spans(output[:0]).shape == (0, 2)
    far = torch.zeros(1, 2, 40)
    far[0, 0, 0] = far[0, 1, 35] = 9.0
    first, last = best_spans(far)[0].tolist()
    assert last - first < 30


def test_beside_squad() -> None:
    """F1 and exact matches are SQuAD's where each token is a word; unknown answers count in nothing."""
    output = 3 * torch.randn(60, 2, TOKENS, generator=torch.Generator().manual_seed(3))
    labels = by_hand(output + torch.randn(60, 2, TOKENS, generator=torch.Generator().manual_seed(4)), TOKENS)
    unknown = torch.tensor(labels)
    unknown[7] = -100
    unknown[8, 1] = -100
    ours = AnswerScores().keep_examples()
    for part in (slice(0, 25), slice(25, None)):
        ours.add(output[part], unknown[part])
    theirs = SQuAD()
    for place, (given, wanted) in enumerate(zip(best_spans(output).tolist(), labels, strict=True)):
        if place not in (7, 8):
            texts = [" ".join(f"w{token}" for token in range(a, b + 1)) for a, b in (given, wanted)]
            theirs.update(
                [{"prediction_text": texts[0], "id": str(place)}],
                [{"answers": {"text": [texts[1]], "answer_start": [0]}, "id": str(place)}],
            )
    found, wanted = ours.compute(), theirs.compute()
    assert list(found) == ["loss", "f1", "exact_match"]
    assert 0.2 < found["exact_match"] < found["f1"] < 0.9
    assert found["f1"] == pytest.approx(float(wanted["f1"]) / 100)
    assert found["exact_match"] == pytest.approx(float(wanted["exact_match"]) / 100)
    kept = ours.answers()
    whole = np.ones(60)
    assert {name: one.scores(whole[None])[0] for name, one in kept.contributions.items()} == pytest.approx(found)


def test_the_loss_and_the_choice_of_scores() -> None:
    """The loss is transformers' own; an ensemble of one model and the model score alike."""
    one, given = model(), batch()
    labels = given["labels"]
    found: Any = make_scores(one)
    assert (task_of(one), hub_task(one)) == ("question_answering", "question-answering")
    found.update(one, given)
    inputs = {name: given[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        own = one(**inputs, start_positions=labels[:, 0], end_positions=labels[:, 1])
    assert found.compute()["loss"] == pytest.approx(float(own.loss))
    together: Any = make_scores(Ensemble([one]))
    together.update(Ensemble([one]), given)
    assert together.compute() == pytest.approx(found.compute())
    likelihood = scores(one, given, "empirical")[0]
    assert float(-likelihood.detach().mean() / 2) == pytest.approx(float(own.loss), rel=1e-5)


def test_both_ends_are_one_output() -> None:
    """A mask of other tokens, as beside a decoder's, hides none; one end alone is no output that is known."""
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = BartForQuestionAnswering(BartConfig(vocab_size=20, max_position_embeddings=32, **sizes, **heads)).eval()
    given = batch(padded=3)
    with torch.no_grad():
        found = logits(bart, {**given, "decoder_input_ids": given["input_ids"][:, :5]})
    assert found.shape == (3, 2, 5)
    assert found.abs().max() < 1000
    with pytest.raises(TypeError, match=r"which holds none of logits, .*start_logits, end_logits"):
        main_output(SimpleNamespace(start_logits=found[:, 0]))


def test_answers_that_are_chosen_are_of_another_kind() -> None:
    """A model of images and questions chooses one of all answers."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    chooses = ViltForQuestionAnswering(ViltConfig(image_size=8, patch_size=4, vocab_size=20, **sizes))
    assert not answers_questions(chooses)
    assert all(map(answers_questions, (model(), model(1))))


def test_padding_is_no_answer() -> None:
    """Longer padding changes neither logits, nor what is drawn for Fisher information, nor how sure the model is."""
    one, short = model(), batch(padded=3)
    longer = {name: torch.nn.functional.pad(short[name], (0, 4)) for name in ("input_ids", "attention_mask")}
    longer["labels"] = short["labels"]
    with torch.no_grad():
        before, after = logits(one, short), logits(one, longer)
    assert torch.allclose(before, after[..., :TOKENS], atol=1e-5)
    assert (after[-1, :, TOKENS - 3 :] < before[:-1].amin() - 100).all()
    assert best_spans(after).tolist() == best_spans(before).tolist()
    unlabelled = [{name: given[name] for name in ("input_ids", "attention_mask")} for given in (short, longer)]
    drawn = [scores(one, given, "model", seed=2)[0] for given in unlabelled]
    assert torch.allclose(drawn[0], drawn[1], atol=1e-4)
    sure = [float(mean_entropy(one, given)) for given in unlabelled]
    assert sure[0] == pytest.approx(sure[1], abs=1e-4)


def test_expected_labels_are_refused() -> None:
    """They would be as many as tokens."""
    with pytest.raises(InputError, match="'expected' would take every token of the text for both ends"):
        scores(model(), batch(), "expected")


def test_never_answering_is_the_level_of_chance() -> None:
    """The share of questions without an answer, of those that are known."""
    labels = torch.tensor([[2, 4], [0, 0], [0, 0], [1, 3], [-100, -100]])
    scores = AnswerScores().keep_examples()
    scores.add(torch.zeros(5, 2, TOKENS).index_fill(2, torch.tensor([0]), 1.0), labels)
    assert scores.answers().chance == {"f1": 0.5, "exact_match": 0.5}
    assert scores.compute()["exact_match"] == 0.5
    assert not scores.answers().is_constant
