"""The head of a checkpoint: what its outputs are for, what they are called, and what its inputs go through."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn
from transformers.models.auto import modeling_auto

from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.lightning_file import read_archive
from fusionlab.data.preprocessing import preprocessing_of
from fusionlab.data.tokenizers import has_tokenizer
from fusionlab.decoder_inputs import Start, decoder_start
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Task
from fusionlab.evaluation.task_scores import classes_in, compares_images, is_seq2seq
from fusionlab.misfits import label_names, unnamed
from fusionlab.symmetry.inputs import positions_of

Kind = Literal[
    "texts", "words", "questions", "running text", "texts and targets", "pairs", "images", "images and class names"
]
# Longer texts are cut, unless asked for otherwise; attention takes memory by the square.
_LENGTH = 128
# An answer that is cut off is not known.
_LENGTHS: dict[Kind, int] = {"questions": 384}
# Tokens of the tables of positions that some models keep for themselves.
_KEPT = 2


@dataclass(frozen=True)
class Head:
    """The head of a checkpoint.

    Attributes:
        source: of the checkpoint, for messages.
        kind: of inputs that it reads.
        task: that its outputs are for.
        names: of its outputs, in order; empty where they are no classes.
        is_named: whether the checkpoint itself has these names; else they are numbers.
        places: folders that may hold its tokenizer or preprocessor, the best first.
        model: that it is on.
    """

    source: str
    kind: Kind
    task: Task
    names: tuple[str, ...]
    is_named: bool
    places: tuple[Path, ...]
    model: nn.Module

    def tokenizer(self) -> str:
        """The place of the checkpoint's tokenizer.

        Raises:
            InputError: it has none.
        """
        for place in self.places:
            if has_tokenizer(place):
                return str(place)
        if named := tokenizer_of_training(self.places):
            return named
        raise InputError(
            f"{self.source} has no tokenizer beside its weights, so texts cannot be read for it; expected "
            f"data.tokenizer, the folder or hub id of the model that it was fine-tuned from (bytes, if it reads bytes)"
        )

    def max_length(self) -> int:
        """The most tokens of a text: 128 (384 with a question), or as many as the model has positions for if fewer."""
        most, length = positions_of(getattr(self.model, "config", None)), _LENGTHS.get(self.kind, _LENGTH)
        return length if most is None or most <= 2 * _KEPT else min(length, most - _KEPT)

    def padded_length(self) -> int | None:
        """The tokens that each text is padded to, where a model was trained so and reads padding like anything else.

        SigLIP was, which is known by its name, as in transformers' own pipeline for zero-shot image classification.
        """
        config: Any = getattr(self.model, "config", None)
        is_siglip = str(getattr(config, "model_type", "")).startswith("siglip")
        return positions_of(config) if is_siglip else None

    def decoder_start(self, padding: int) -> Start:
        """The token that the model's decoder begins with; ``last`` where that is the last one of each target.

        Args:
            padding: the tokenizer's padding token.
        """
        return decoder_start(getattr(self.model, "config", None), padding)

    def image_options(self) -> dict[str, Any]:
        """Size, channels and normalisation of images, as options of `fusionlab.data.Images`."""
        config: Any = getattr(self.model, "config", None)
        config = getattr(config, "vision_config", None) or config
        embedding: Any = getattr(self.model, "patch_embed", None)
        projection = getattr(embedding, "proj", None)
        channels = getattr(config, "num_channels", None) or getattr(projection, "in_channels", None) or 3
        for place in self.places:
            try:
                preprocessing_of(str(place))
            except InputError:
                continue
            return {"preprocessor": str(place), "channels": channels}
        size = getattr(config, "image_size", None)
        return {"image_size": size if isinstance(size, int) else None, "channels": channels}


def head_of(checkpoint: Checkpoint) -> Head:
    """The head of a checkpoint.

    Args:
        checkpoint: of a transformers or timm model.

    Raises:
        InputError: a model with a head that no data module here has data for.
    """
    model, config = checkpoint.model, getattr(checkpoint.model, "config", None)
    names, is_named = _names(model)
    kind, task = _purpose(model, len(names))
    if kind is None or task is None:
        raise InputError(
            f"{checkpoint.source} is a {type(model).__name__}, for which no data can be guessed from a file; expected "
            f"a model that classifies texts, words or images, one that compares images with texts, one that answers "
            f"questions on texts, a language model, one from texts to texts or an encoder of texts, or a data module "
            f"by its class (--data CLASS)"
        )
    is_open = kind == "images and class names"
    if is_open or task in ("question_answering", "masked_lm", "causal_lm", "seq2seq", "similarity", "regression"):
        names = ()
    source = Path(checkpoint.source).expanduser()
    own = source if source.is_dir() else locate(checkpoint.source)
    # An adapter's folder comes before that of its base model; a Lightning file has what lies beside it.
    places = dict.fromkeys(place for place in (own, checkpoint.location) if config is not None or place.exists())
    return Head(checkpoint.source, kind, task, names, is_named, tuple(places), model)


def _purpose(model: nn.Module, outputs: int) -> tuple[Kind | None, Task | None]:
    """The kind of inputs and the task of a model, judged by its class, its config and the number of its outputs."""
    name, config = type(model).__name__, getattr(model, "config", None)
    if is_seq2seq(model):
        return "texts and targets", "seq2seq"
    for kind, task, known in (
        ("words", "tokens", modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES),
        ("questions", "question_answering", modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES),
        ("running text", "masked_lm", modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
        ("running text", "causal_lm", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        ("images", "classification", modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
    ):
        # Questions may be on pages, whose words have places.
        if name in classes_in(known) and (kind != "questions" or _reads_texts(model)):
            return kind, task  # type: ignore[return-value]
    if name in classes_in(modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES):
        problem = getattr(config, "problem_type", None)
        if problem == "multi_label_classification":
            return "texts", "multilabel"
        # As transformers itself takes a single output.
        is_number = problem == "regression" or (problem is None and outputs == 1)
        return "texts", "regression" if is_number else "classification"
    if hasattr(model, "pretrained_cfg"):  # of timm
        return "images", "classification"
    return _purpose_without_head(model)


def _purpose_without_head(model: nn.Module) -> tuple[Kind | None, Task | None]:
    """The same of a model whose outputs are embeddings, or how alike they are."""
    if compares_images(model):
        return "images and class names", "classification"
    return ("pairs", "similarity") if _embeds_texts(model) else (None, None)


def _embeds_texts(model: nn.Module) -> bool:
    """True for an encoder of texts alone, without a head."""
    known = (modeling_auto.MODEL_MAPPING_NAMES, modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES)
    is_bare = any(type(model).__name__ in classes_in(names) for names in known)
    return is_bare and _reads_texts(model) and "decoder_input_ids" not in inspect.signature(model.forward).parameters


def _reads_texts(model: nn.Module) -> bool:
    """True where texts are all that a model reads: neither images nor sounds nor places on a page."""
    reads = inspect.signature(model.forward).parameters
    others = ("pixel_values", "visual_feats", "input_features", "input_values", "bbox")
    return getattr(model, "main_input_name", None) == "input_ids" and not any(name in reads for name in others)


def _names(model: nn.Module) -> tuple[tuple[str, ...], bool]:
    """The names of a model's outputs, and whether they are more than numbers."""
    config: Any = getattr(model, "config", None)
    if names := tuple(label_names(config)):
        return names, not unnamed(names)
    count = getattr(model, "num_classes", None)
    return tuple(map(str, range(count if isinstance(count, int) else 0))), False


def tokenizer_of_training(places: Sequence[Path]) -> str | None:
    """The tokenizer of the data module that a Lightning file was trained on; None where no file says it.

    Args:
        places: of a checkpoint, of which any may be such a file.
    """
    for place in places:
        if place.is_file() and place.suffix == ".ckpt":
            beside = place.parent
            if (beside / CONFIG).is_file() and has_tokenizer(beside):
                return str(beside)
            trained = read_archive(place).get("datamodule_hyper_parameters")
            named = trained.get("tokenizer") if isinstance(trained, dict) else None
            if isinstance(named, str):
                return named
    return None
