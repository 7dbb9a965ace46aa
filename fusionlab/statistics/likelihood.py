"""The log-likelihood of an example's labels, and the numbers whose gradients Fisher information squares.

One example is one row of the batch: an image, a text, a sequence. Its log-likelihood is the sum over what is predicted
for it: one label; or a label for each position, apart from padding and from labels of -100; or, for several labels at
once, each of them; or both ends of an answer, whose labels are tokens. Given the inputs these are independent of each
other, so the Fisher information of an example is the sum of theirs.

Padding is where ``attention_mask`` is 0. In a causal language model a position predicts the next token; it counts if
both do, and its label is the next token where the batch has none. Several labels (``problem_type``
``multi_label_classification``) are independent yes-or-no questions; regression is a Gaussian of variance 1 around the
output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.examples import take_examples
from fusionlab.forward import IGNORED, LABELS, answers_questions, class_texts, logits
from fusionlab.modes import in_eval_mode
from fusionlab.statistics.layout import fingerprints
from fusionlab.types import Batch

Labels = Literal["model", "expected", "empirical"]
LABEL_MODES: tuple[str, ...] = get_args(Labels)


@dataclass(frozen=True)
class Prediction:
    """A model's predictions for a batch, one in each place.

    Attributes:
        outputs: shape ``(batch, places, classes)``; for yes-or-no questions and regression ``(batch, places)``.
        counts: which places count, bool, shape ``(batch, places)``.
        labels: shape ``(batch, places)``, or None where the batch has none.
    """

    outputs: Tensor
    counts: Tensor
    labels: Tensor | None


def scores(model: nn.Module, batch: Batch, labels: Labels = "model", seed: int = 0) -> list[Tensor]:
    """Numbers for each example: the sum of their squared gradients is what the example adds to the Fisher information.

    Args:
        model: a classifier of sequences, images or tokens, one that finds answers in texts, a language model, or a
            regression.
        batch: its inputs by name, with `labels` if they are to be used or say what is to be left out.
        labels: ``model`` draws one label for each place from the model's own distribution: one score, the
            log-likelihood of all of them. ``expected`` takes every class, weighted by its probability: a score for each
            place and class. ``empirical`` takes the batch's labels: one score.
        seed: of drawing. What is drawn for an example depends on it and on the example's own inputs, neither on the
            batch that it comes in nor on its padding.

    Returns:
        Tensors of shape ``(batch,)``.

    Raises:
        InputError: labels are missing, or the model predicts something else.
    """
    prediction, family = predicted(model, batch)
    if labels == "empirical":
        if prediction.labels is None:
            raise InputError(
                "the batch has no 'labels' that fit the model; expected some for labels 'empirical', or labels 'model'"
            )
        return [family.log_likelihood(prediction, prediction.labels)]
    if labels == "expected":
        if _is_language_model(model) or answers_questions(model):
            every = "of the text for both ends" if answers_questions(model) else "of the vocabulary at every position"
            raise InputError(
                f"labels 'expected' would take every token {every}, of a {type(model).__name__}; expected labels "
                f"'model' or 'empirical'"
            )
        return family.weighted(prediction)
    with torch.no_grad():
        drawn = torch.zeros_like(prediction.counts, dtype=torch.float64)
        for index, fingerprint in enumerate(fingerprints(batch)):
            digest = hashlib.blake2b(f"{seed}:{fingerprint}".encode(), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
            places = prediction.counts[index]
            drawn[index, places] = family.draw(prediction.outputs[index, places].double(), generator)
    return [family.log_likelihood(prediction, drawn)]


def predicted(model: nn.Module, batch: Batch) -> tuple[Prediction, Family]:
    """The predictions of a model for a batch, and the distribution of their labels.

    Args:
        model: see `scores`.
        batch: see there.

    Raises:
        InputError: the model predicts something else than labels.
    """
    output = logits(model, batch)
    family = _family(model, output, batch.get(LABELS))
    return _places(model, batch, output, family), family


@torch.no_grad()
def predicts(model: nn.Module, batch: Batch) -> bool:
    """True if a model predicts labels of rows or of positions, so that it has `scores`.

    Args:
        model: run in eval mode, and left as it was.
        batch: of its inputs; its first example is tried.
    """
    one = take_examples(batch, torch.tensor([0]))
    device = next(model.parameters()).device
    with in_eval_mode(model):
        try:
            scores(model, {name: value.to(device) for name, value in one.items()})
        except InputError:
            return False
    return True


# What one place's distribution is


@dataclass(frozen=True)
class Family:
    """A distribution of labels.

    Attributes:
        log_likelihood: from a prediction and labels to the sum over places that count, shape ``(batch,)``.
        draw: from outputs of some places of one example, float64, and a generator to their labels.
        weighted: every class's log-likelihood, times the root of its probability, one for each place and class.
    """

    log_likelihood: Callable[[Prediction, Tensor], Tensor]
    draw: Callable[[Tensor, torch.Generator], Tensor]
    weighted: Callable[[Prediction], list[Tensor]]


def _log_likelihood_of_class(prediction: Prediction, labels: Tensor) -> Tensor:
    targets = labels.long().masked_fill(~prediction.counts, IGNORED)
    loss = functional.cross_entropy(
        prediction.outputs.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
    )
    return -loss.view_as(targets).sum(1)


def _draw_class(outputs: Tensor, generator: torch.Generator) -> Tensor:
    chances = torch.rand(len(outputs), 1, generator=generator, dtype=torch.float64).to(outputs.device)
    cumulated = outputs.softmax(-1).cumsum(-1)
    return torch.searchsorted(cumulated, chances).squeeze(1).clamp(max=outputs.shape[-1] - 1).double()


def _weighted_classes(prediction: Prediction) -> list[Tensor]:
    logarithms = prediction.outputs.log_softmax(-1)
    roots = (logarithms.detach() / 2).exp() * prediction.counts[..., None]
    weighted = roots * logarithms
    places = [place for place in range(weighted.shape[1]) if prediction.counts[:, place].any()]
    return [weighted[:, place, label] for place in places for label in range(weighted.shape[2])]


def _log_likelihood_of_answers(prediction: Prediction, labels: Tensor) -> Tensor:
    targets = labels.to(prediction.outputs).masked_fill(~prediction.counts, 0)
    loss = functional.binary_cross_entropy_with_logits(prediction.outputs, targets, reduction="none")
    return -(loss * prediction.counts).sum(1)


def _draw_answers(outputs: Tensor, generator: torch.Generator) -> Tensor:
    chances = torch.rand(len(outputs), generator=generator, dtype=torch.float64).to(outputs.device)
    return (chances < outputs.sigmoid()).double()


def _weighted_answers(prediction: Prediction) -> list[Tensor]:
    # The gradients for yes and no are (1 - p) and -p times that of the logit: together their squares weigh p (1 - p).
    yes = prediction.outputs.detach().sigmoid()
    weighted = (yes * (1 - yes)).sqrt() * prediction.outputs * prediction.counts
    return list(weighted.unbind(1))


def _log_likelihood_of_values(prediction: Prediction, labels: Tensor) -> Tensor:
    targets = labels.to(prediction.outputs).masked_fill(~prediction.counts, 0)
    return -((prediction.outputs - targets).square() * prediction.counts).sum(1) / 2


def _draw_values(outputs: Tensor, generator: torch.Generator) -> Tensor:
    return outputs + torch.randn(len(outputs), generator=generator, dtype=torch.float64).to(outputs.device)


def _weighted_values(prediction: Prediction) -> list[Tensor]:
    # The expected square of the deviation is the variance, 1.
    return list((prediction.outputs * prediction.counts).unbind(1))


CATEGORICAL = Family(_log_likelihood_of_class, _draw_class, _weighted_classes)
ANSWERS = Family(_log_likelihood_of_answers, _draw_answers, _weighted_answers)
GAUSSIAN = Family(_log_likelihood_of_values, _draw_values, _weighted_values)
FAMILIES = {
    "single_label_classification": CATEGORICAL,
    "multi_label_classification": ANSWERS,
    "regression": GAUSSIAN,
}


def _family(model: nn.Module, output: Tensor, labels: Tensor | None) -> Family:
    """The family of the config's problem type; without one, as transformers guesses it from outputs and labels."""
    if output.ndim == 3:
        return CATEGORICAL
    config: Any = getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    if problem is not None:
        return FAMILIES[problem]
    if config is not None and output.shape[-1] == 1:
        return GAUSSIAN
    return ANSWERS if labels is not None and labels.is_floating_point() and labels.ndim == 2 else CATEGORICAL


# Which places count

# What transformers calls the losses of models that predict labels.
PREDICTIONS = {
    "ForSequenceClassification",
    "ForImageClassification",
    "ForVideoClassification",
    "ForAudioClassification",
    "ForTokenClassification",
    "ForMaskedLM",
    "ForCausalLM",
    "ForConditionalGeneration",
}


# What transformers calls the losses by the next token; without a name it takes that too.
_SHIFTED = {None, "ForCausalLM", "ForConditionalGeneration"}


def _places(model: nn.Module, batch: Batch, output: Tensor, family: Family) -> Prediction:
    if output.ndim not in (2, 3) or not (_predicts_labels(model) or class_texts(batch) is not None):
        raise InputError(
            f"a {type(model).__name__} predicts no labels of rows or of positions; expected a classifier, a language "
            f"model or a regression"
        )
    labels = batch.get(LABELS)
    if output.ndim == 2:
        if family is CATEGORICAL:
            output = output[:, None]
        shape = output.shape[:2]
        # Labels of a model's own, where its head has those of others too, say nothing by their places.
        labels = None if labels is None or labels.numel() != shape.numel() else labels.reshape(shape)
        return _counted(output, torch.ones(shape, dtype=torch.bool, device=output.device), labels)
    config: Any = getattr(model, "config", None)
    sequence_to_sequence = getattr(config, "is_encoder_decoder", False)
    mask = batch.get("decoder_attention_mask" if sequence_to_sequence else "attention_mask")
    if mask is None or answers_questions(model) or mask.shape != output.shape[:2]:
        mask = torch.ones(output.shape[:2], device=output.device)
    counts = mask.bool()
    if not _is_causal(model):
        return _counted(output, counts, labels)
    labels = batch["input_ids"] if labels is None else labels
    return _counted(output[:, :-1], counts[:, :-1] & counts[:, 1:], labels[:, 1:])


def _counted(outputs: Tensor, counts: Tensor, labels: Tensor | None) -> Prediction:
    return Prediction(outputs, counts if labels is None else counts & (labels != IGNORED), labels)


def _predicts_labels(model: nn.Module) -> bool:
    """Outputs of other models may have the shape of logits: hidden states, or similarities."""
    if not hasattr(model, "main_input_name") or answers_questions(model):
        return True
    return _is_causal(model) or model.loss_type in PREDICTIONS


def _is_causal(model: nn.Module) -> bool:
    """True where position t predicts the token at t + 1: transformers' own rule for its default loss."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return False
    generates: Any = getattr(model, "can_generate", None)
    return generates is not None and generates() and getattr(model, "loss_type", None) in _SHIFTED


def _is_language_model(model: nn.Module) -> bool:
    embeddings: Any = getattr(model, "get_output_embeddings", None)
    return embeddings is not None and embeddings() is not None
