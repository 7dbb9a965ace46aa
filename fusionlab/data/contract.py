"""The contract of data modules: facts that one may state about its data, beside the loaders that Lightning asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, get_args

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fusionlab.decoder_inputs import Start
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import ClassMetric, Task
from fusionlab.evaluation.similarity_scores import Pooling

T = TypeVar("T")


class DataFacts(Protocol):
    """Facts about the data of a data module. Any LightningDataModule will do: each member may be absent or None.

    `described` reads them, and refuses what is none of these.
    """

    @property
    def name(self) -> str:
        """The name of the data in results and messages; that of the class if absent."""

    @property
    def task(self) -> Task | None:
        """The task that the labels are for; judged by the model if absent."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the labels, in the order of their numbers; digits for labels that have only numbers."""

    @property
    def num_classes(self) -> int | None:
        """The number of classes, at least 1."""

    @property
    def metric(self) -> ClassMetric | None:
        """The metric to look at first, of a classification; accuracy if absent."""

    @property
    def pooling(self) -> Pooling | None:
        """The way in which a text gets one embedding, where embeddings are scored; the mean of its tokens if absent."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer that the texts were encoded with; absent where the data are no texts."""

    @property
    def vocabulary_size(self) -> int | None:
        """The number of tokens that the tokenizer knows, at least 1."""

    @property
    def decoder_start(self) -> Start | None:
        """The token that decoders begin with, or ``last`` for the last one of each target; absent without decoders."""

    def texts(self, split: str) -> Sequence[str]:
        """The texts of ``train``, ``val`` or ``test``, to be compared between data sets; none where there are none."""

    def label_counts(self) -> Tensor | None:
        """The number of training samples with each label, in the order of their numbers; None where none are counted.

        Shape ``(classes,)``; ``(labels, 2)``, without and with each, where several labels may be right.
        """


class _Described(DataFacts):
    """The facts that a data module states; read from it each time, since some are known only after its ``setup``."""

    def __init__(self, module: object) -> None:
        self._module = module

    @property
    def name(self) -> str:
        return self._stated("name", _is_text, "text") or type(self._module).__name__

    @property
    def task(self) -> Task | None:
        return self._stated("task", get_args(Task).__contains__, f"one of {', '.join(get_args(Task))}")

    @property
    def class_names(self) -> Sequence[str] | None:
        return self._stated("class_names", _are_names, "a list of names")

    @property
    def num_classes(self) -> int | None:
        return self._stated("num_classes", _is_count, "a number of at least 1")

    @property
    def metric(self) -> ClassMetric | None:
        known = get_args(ClassMetric)
        return self._stated("metric", known.__contains__, f"one of {', '.join(known)}")

    @property
    def pooling(self) -> Pooling | None:
        known = get_args(Pooling)
        return self._stated("pooling", known.__contains__, f"one of {', '.join(known)}")

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        return self._stated("tokenizer", _is_tokenizer, "a tokenizer of transformers")

    @property
    def vocabulary_size(self) -> int | None:
        return self._stated("vocabulary_size", _is_count, "a number of at least 1")

    @property
    def decoder_start(self) -> Start | None:
        return self._stated("decoder_start", _is_start, "the number of a token, or 'last'")

    def texts(self, split: str) -> Sequence[str]:
        found = self._method("texts")
        return [] if found is None else found(split)

    def label_counts(self) -> Tensor | None:
        found = self._method("label_counts")
        return None if found is None else found()

    def check(self) -> None:
        """Read what is known without reading any data.

        Raises:
            InputError: something that is not what the contract says.
        """
        for _ in (self.name, self.task, self.metric, self._method("texts"), self._method("label_counts")):
            pass

    def _stated(self, member: str, is_right: Callable[[Any], bool], expected: str) -> Any:
        value = getattr(self._module, member, None)
        if value is not None and not is_right(value):
            kind = type(self._module).__name__
            raise InputError(f"{member} of the data module {kind} is {value!r}; expected {expected}")
        return value

    def _method(self, member: str) -> Callable[..., Any] | None:
        return self._stated(member, callable, "a method")


def described(module: object) -> DataFacts:
    """The facts that a data module states about its data; checked here as far as no data need be read, then when read.

    Args:
        module: a LightningDataModule; or None, of which nothing is known.

    Raises:
        InputError: a member that is not what `DataFacts` says.
    """
    found = _Described(module)
    found.check()
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_names(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_text, value))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _is_start(value: object) -> bool:
    return value == "last" or (isinstance(value, int) and value >= 0)


def _is_tokenizer(value: object) -> bool:
    return isinstance(value, PreTrainedTokenizerBase)
