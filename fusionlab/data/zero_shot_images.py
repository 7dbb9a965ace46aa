"""Images beside the texts of all classes, for models that tell which text an image goes with."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from fusionlab.data.images import Images
from fusionlab.data.tokenizers import load_tokenizer, tokens_of
from fusionlab.errors import InputError

PLACE = "{}"
TEMPLATE = f"a photo of a {PLACE}."


class ZeroShotImages(Images):
    """Images with the names of their classes as texts, as CLIP classifies them (Radford et al., 2021, section 3.1).

    Batches are those of `Images`, with what the tokenizer gives for the text of every class, each of shape
    ``(batch, classes, tokens)`` and the same for each image; models read it once (`fusionlab.forward.forward`). Their
    logits are the similarities of an image to each text, of shape ``(batch, classes)``.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        template: str = TEMPLATE,
        max_length: int = 77,
        pad_to: int | None = None,
        **options: Any,
    ) -> None:
        """Say where the images are, and how the text of a class is made.

        Args:
            path: a hub id, a folder (one sub-folder of images for each class, or data files), or one data file.
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            template: the text of a class, with ``{}`` for its name; underscores of names are written as spaces.
            max_length: most tokens of a text, special ones included.
            pad_to: tokens that every text is padded to, as SigLIP was trained with 64; as many as the longest one has
                if null.
            options: images, labels, splits and batches, see `Images`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, **options)
        if template.count(PLACE) != 1:
            raise InputError(
                f"data.template is {template!r}; expected a text with {PLACE} once, for the name of a class, such as "
                f"{TEMPLATE!r}"
            )
        for argument, value in (("max_length", max_length), ("pad_to", max_length if pad_to is None else pad_to)):
            if value < 1:
                raise InputError(f"data.{argument} is {value}, but at least 1 was expected")
        self.tokenizer_source = tokenizer
        self.template, self.max_length, self.pad_to = template, max_length, pad_to
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._tokens: dict[str, Tensor] | None = None

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.tokenizer_source, may_be_slow=True)
        return self._tokenizer

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens that there are."""
        return len(self.tokenizer)

    def class_texts(self) -> list[str]:
        """The text of each class, in the order of their labels."""
        names = (" ".join(name.replace("_", " ").split()) for name in self.class_names)
        return [self.template.replace(PLACE, name) for name in names]

    def _class_tokens(self) -> dict[str, Tensor]:
        if self._tokens is None:
            padding = {"padding": True} if self.pad_to is None else {"padding": "max_length"}
            length = self.max_length if self.pad_to is None else self.pad_to
            found = tokens_of(
                self.tokenizer,
                self.class_texts(),
                truncation=True,
                max_length=length,
                return_tensors="pt",
                padding_side="right",
                **padding,
            )
            self._tokens = {name: found[name] for name in self.tokenizer.model_input_names if name in found}
        return self._tokens

    def samples(self, split: str, training: bool = False) -> BesideTexts:
        """The images of a split as tensors, with their labels and the texts of all classes.

        Args:
            split: ``train``, ``val`` or ``test``.
            training: whether they are augmented, where that is asked for.
        """
        return BesideTexts(super().samples(split, training), self._class_tokens())


class BesideTexts(Dataset[dict[str, Tensor]]):
    """Images, each with the tokens of the texts of all classes.

    Args:
        images: with their labels, if they have any.
        texts: what the tokenizer gives, each of shape ``(classes, tokens)``.
    """

    def __init__(self, images: Any, texts: dict[str, Tensor]) -> None:
        self.images, self.texts = images, texts

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {**self.images[index], **self.texts}
