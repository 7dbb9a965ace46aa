"""Synthetic token sequences: random from the vocabulary, and what models write themselves."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError, first_line
from fusionlab.forward import logits
from fusionlab.modes import in_eval_mode
from fusionlab.sentences import sentence

# Passes over a sequence in which a masked language model fills every place anew.
GIBBS_PASSES = 3
# Share of places hidden at once; small enough that most of a place's context is seen.
HIDDEN_SHARE = 0.25
# Share that is hidden in a finished text, as in those that such models learn from (Devlin et al., 2019).
LEFT_HIDDEN = 0.15
# Tokens of the longest text that models write, where nothing is said.
WRITTEN_LENGTH = 128
# So many texts at most are written at once, and of so many tokens together, for their scores.
PIECE, PIECE_TOKENS = 256, 8192


@dataclass(frozen=True)
class Vocabulary:
    """Token ids by their use; None for one that there is not.

    Attributes:
        size: number of ids.
        first: what a sequence begins with (CLS or BOS).
        end: what it ends with (SEP or EOS).
        pad: what fills up shorter sequences.
        mask: what hides a token.
        decoder_first: what a decoder's sequence begins with.
        special: all ids that never stand inside a text.
    """

    size: int
    first: int | None = None
    end: int | None = None
    pad: int | None = None
    mask: int | None = None
    decoder_first: int | None = None
    special: frozenset[int] = field(default_factory=frozenset)

    @staticmethod
    def of(model: nn.Module, size: int, tokenizer: Any = None) -> Vocabulary:
        """The vocabulary by the model's config, and by its tokenizer if there is one, which knows better."""
        config: Any = getattr(model, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        names = ("cls", "bos", "sep", "eos", "pad", "mask", "decoder_start")
        ids = {name: _id(tokenizer, text, f"{name}_token_id", size) for name in names}
        special = {value for value in ids.values() if value is not None}
        special |= {value for value in getattr(tokenizer, "all_special_ids", ()) if value < size}
        return Vocabulary(
            size,
            first=ids["bos"] if ids["cls"] is None else ids["cls"],
            end=ids["eos"] if ids["sep"] is None else ids["sep"],
            pad=ids["pad"],
            mask=ids["mask"],
            decoder_first=ids["decoder_start"],
            special=frozenset(special),
        )

    def ordinary(self) -> Tensor:
        """The ids of ordinary tokens."""
        kept = torch.tensor([index for index in range(self.size) if index not in self.special])
        return kept if len(kept) else torch.arange(self.size)


def random_text(count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator) -> dict[str, Tensor]:
    """Ordinary tokens drawn uniformly between the special ones, of random length.

    Args:
        count: sequences.
        length: of the longest, special tokens included; all are as long where the vocabulary has nothing to pad with.

    Returns:
        ``input_ids`` and ``attention_mask``, both of shape ``(count, length)``.
    """
    ids, lengths = _ordinary_tokens(count, length, vocabulary, generator), torch.full((count,), length)
    if vocabulary.pad is not None:
        lengths = torch.randint(min(length, max(3, length // 4)), length + 1, (count,), generator=generator)
    return framed(ids, lengths, vocabulary)


def _ordinary_tokens(count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator) -> Tensor:
    ordinary = vocabulary.ordinary()
    return ordinary[torch.randint(len(ordinary), (count, length), generator=generator)]


def framed(ids: Tensor, lengths: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Put the special tokens of sequences right: first, end, padding.

    Args:
        ids: shape ``(count, length)``.
        lengths: of each sequence, special tokens included.
    """
    ids, places = ids.clone(), torch.arange(ids.shape[1]).expand_as(ids)
    if vocabulary.first is not None:
        ids[:, 0] = vocabulary.first
    if vocabulary.end is not None:
        ids[places == lengths[:, None] - 1] = vocabulary.end
    if vocabulary.pad is not None:
        ids[places >= lengths[:, None]] = vocabulary.pad
    return {"input_ids": ids, "attention_mask": (places < lengths[:, None]).long()}


def continues_text(model: nn.Module) -> bool:
    """True if a model writes texts from left to right, and begins with a text and not with an image."""
    config = getattr(model, "config", None)
    can = getattr(model, "can_generate", None)
    begins = getattr(model, "main_input_name", "input_ids") == "input_ids"
    return bool(can and can()) and begins and not getattr(config, "is_encoder_decoder", False)


def fills_text(model: nn.Module, vocabulary: Vocabulary) -> bool:
    """True if a model fills in hidden tokens, and the mask is known: it has a score for each id at each place."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    return output is not None and vocabulary.mask is not None and not continues_text(model)


def writes_text(model: nn.Module, vocabulary: Vocabulary) -> bool:
    """True if a model writes texts, in either way."""
    return continues_text(model) or fills_text(model, vocabulary)


def written_in_turn(
    models: Sequence[nn.Module], count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator
) -> dict[str, Tensor]:
    """Texts that several models write in turn, padded to one length; arguments are those of `written_text`.

    Returns:
        ``input_ids`` and ``attention_mask``, both of shape ``(count, longest)``.

    Raises:
        InputError: a model that writes nothing, or fails where it should.
    """
    parts: list[dict[str, Tensor]] = []
    # Every model writes its share of a few texts too.
    piece = min(PIECE, max(1, PIECE_TOKENS // length), math.ceil(count / len(models)))
    for start in range(0, count, piece):
        model = models[len(parts) % len(models)]
        try:
            with in_eval_mode(model):
                text = written_text(model, min(piece, count - start), length, vocabulary, generator)
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            if sentence(error) is not None:
                raise
            # Scores that are no numbers, or sizes that a kernel of its class does not take.
            raise InputError(
                f"a {type(model).__name__} fails when it writes a text: {first_line(error)}; expected one that does, "
                f"random tokens (kind tokens) or data"
            ) from error
        parts.append(text)
    longest = max(part["input_ids"].shape[1] for part in parts)
    filler = {"input_ids": vocabulary.pad or 0, "attention_mask": 0}
    return {
        name: torch.cat(
            [nn.functional.pad(part[name], (0, longest - part[name].shape[1]), value=value) for part in parts]
        )
        for name, value in filler.items()
    }


@torch.no_grad()
def written_text(
    model: nn.Module, count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator
) -> dict[str, Tensor]:
    """Texts sampled from a model at temperature 1: left to right, or by filling in hidden places again and again.

    Filling in is Gibbs sampling with several places at once (Wang and Cho, "BERT has a mouth, and it must speak: BERT
    as a Markov random field language model", 2019). In the end 15 % of the places are hidden: what such a model says of
    them is what it is for.

    Args:
        model: a language model in eval mode.
        count: texts.
        length: tokens of the longest; of each that is filled in.
        vocabulary: of the model.
        generator: of what is random.

    Raises:
        InputError: a model that writes nothing.
    """
    if continues_text(model):
        return _continued(model, count, length, vocabulary, generator)
    if fills_text(model, vocabulary):
        return _filled(model, count, length, vocabulary, generator)
    raise InputError(
        f"probes are to be generated, but a {type(model).__name__} writes no text by itself, or its mask token is not "
        f"known; expected kind tokens, or its tokenizer"
    )


def _continued(
    model: Any, count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator
) -> dict[str, Tensor]:
    device = next(model.parameters()).device
    ordinary = vocabulary.ordinary()
    if vocabulary.first is None:
        start = ordinary[torch.randint(len(ordinary), (count, 1), generator=generator)]
    else:
        start = torch.full((count, 1), vocabulary.first)
    # Sampling draws from torch's global generator.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        ids = model.generate(
            start.to(device),
            attention_mask=torch.ones_like(start).to(device),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            num_beams=1,
            max_new_tokens=max(1, length - 1),
            pad_token_id=vocabulary.pad if vocabulary.pad is not None else vocabulary.end or 0,
        ).cpu()
    places = torch.arange(ids.shape[1]).expand_as(ids)
    ends = torch.zeros_like(ids, dtype=torch.bool) if vocabulary.end is None else ids == vocabulary.end
    ends[:, 0] = False
    lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, ids.shape[1])
    return {"input_ids": ids, "attention_mask": (places < lengths[:, None]).long()}


def _filled(
    model: nn.Module, count: int, length: int, vocabulary: Vocabulary, generator: torch.Generator
) -> dict[str, Tensor]:
    device = next(model.parameters()).device
    drawn = _ordinary_tokens(count, length, vocabulary, generator)
    text = framed(drawn, torch.full((count,), length), vocabulary)
    ids, mask = text["input_ids"], text["attention_mask"]
    special = torch.tensor(sorted(vocabulary.special))
    inside = (mask == 1) & ~torch.isin(ids, special)
    for _ in range(round(GIBBS_PASSES / HIDDEN_SHARE)):
        hidden = inside & (torch.rand(ids.shape, generator=generator) < HIDDEN_SHARE)
        shown = torch.where(hidden, torch.tensor(vocabulary.mask), ids)
        scores = logits(model, _accepted(model, {"input_ids": shown, "attention_mask": mask}, device))
        scores = scores[hidden.to(device)].float().cpu()
        scores[:, special[special < scores.shape[-1]]] = -torch.inf
        scores[:, vocabulary.size :] = -torch.inf
        if len(scores):
            ids[hidden] = torch.multinomial(scores.softmax(-1), 1, generator=generator).flatten()
    left = inside & (torch.rand(ids.shape, generator=generator) < LEFT_HIDDEN)
    return {"input_ids": torch.where(left, torch.tensor(vocabulary.mask), ids), "attention_mask": mask}


def accepts(model: nn.Module, name: str) -> bool:
    """True if a model's forward has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


def _accepted(model: nn.Module, batch: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in batch.items() if accepts(model, name)}


def _id(tokenizer: Any, config: Any, name: str, size: int) -> int | None:
    for source in (tokenizer, config):
        value = getattr(source, name, None)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int) and 0 <= value < size:
            return value
    return None
