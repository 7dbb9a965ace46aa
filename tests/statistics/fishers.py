"""Fisher information by hand for the tests of it: small models in float64, padded data, single examples."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPModel, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from fusionlab.forward import logits
from fusionlab.statistics.fisher import FisherAccumulator
from fusionlab.statistics.statistics import Fisher
from fusionlab.symmetry.float64 import InFloat64
from tests.data import colours
from tests.symmetry.models import HEADS, HIDDEN, INTERMEDIATE, LAYERS, generator, random_model, randomize

Batch = dict[str, Tensor]
EXAMPLES, TOKENS, CLASSES, VOCABULARY, PADDING = 5, 7, 5, 31, 1
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 20,
}


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=20,
        bos_token_id=0,
        eos_token_id=0,
    )
    return randomize(GPT2LMHeadModel(config), 0)


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=40, num_layers=2, num_heads=3, decoder_start_token_id=0
    )
    return randomize(T5ForConditionalGeneration(config), 1)


def clip() -> nn.Module:
    return randomize(CLIPModel(CLIPConfig(**colours.description())), 2)


def named_images() -> Batch:
    """Images, each beside the texts of all classes."""
    ids = torch.randint(3, len(colours.WORDS) - 1, (CLASSES, TOKENS), generator=generator(6))
    ids[:, -1] = len(colours.WORDS) - 1
    pixels = torch.randn(EXAMPLES, 3, 8, 8, generator=generator(7), dtype=torch.float64)
    return {"pixel_values": pixels, "input_ids": ids.expand(EXAMPLES, -1, -1), "labels": torch.tensor([0, 3, 3, 1, 4])}


def images() -> Batch:
    pixels = torch.randn(EXAMPLES, 3, 12, 12, generator=generator(3), dtype=torch.float64)
    return {"pixel_values": pixels, "labels": torch.tensor([0, 3, 3, 1, 4])}


def texts(labels: str = "sequence") -> Batch:
    """Five texts of 7, 6, 3, 5 and 7 tokens, padded on the right; a label each, one for each token, or the tokens."""
    draw = generator(4)
    ids = torch.randint(4, VOCABULARY, (EXAMPLES, TOKENS), generator=draw)
    mask = torch.arange(TOKENS) < torch.tensor([7, 6, 3, 5, 7])[:, None]
    ids[~mask] = PADDING
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    if labels == "sequence":
        return {**batch, "labels": torch.tensor([0, 3, 3, 1, 4])}
    if labels == "next":
        return {**batch, "labels": ids.masked_fill(~mask, -100)}
    # As for words of several tokens: only some count.
    targets = torch.randint(CLASSES, ids.shape, generator=draw)
    return {**batch, "labels": targets.masked_fill(~mask | (torch.rand(ids.shape, generator=draw) < 0.4), -100)}


def translations() -> Batch:
    """The texts, with as many tokens of 4, 7, 5, 2 and 6 that count for the decoder."""
    targets = torch.randint(4, VOCABULARY, (EXAMPLES, TOKENS), generator=generator(5))
    mask = torch.arange(TOKENS) < torch.tensor([4, 7, 5, 2, 6])[:, None]
    return {
        **texts(),
        "decoder_input_ids": targets.roll(1, 1).masked_fill(~mask, PADDING),
        "decoder_attention_mask": mask.long(),
        "labels": targets.masked_fill(~mask, -100),
    }


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "roberta-sequence": (lambda: random_model("roberta-sequence"), texts),
    "bert-sequence": (lambda: random_model("bert-sequence"), texts),
    "bert-token": (lambda: random_model("bert-token"), lambda: texts("tokens")),
    "vit": (lambda: random_model("vit-classifier"), images),
    "timm-vit": (lambda: random_model("timm-plain"), images),
    "clip": (clip, named_images),
    "gpt2": (gpt2, lambda: texts("next")),
    "t5": (t5, translations),
}


def take(batch: Batch, start: int, stop: int) -> Batch:
    """Some examples, without the padding that they do not need on either side."""
    part = {name: value[start:stop] for name, value in batch.items()}
    decoded = {name for name in part if name.startswith("decoder_")}
    decoded |= {"labels"} if decoded else set()
    found = dict(part)
    for side, names in (("attention_mask", part.keys() - decoded), ("decoder_attention_mask", decoded)):
        if side in part:
            tokens, longest = part[side].shape, int(part[side].sum(1).max())
            found |= {name: part[name][:, :longest] for name in names if part[name].shape == tokens}
    return found


def split(batch: Batch, sizes: list[int]) -> Iterator[Batch]:
    ends = list(itertools.accumulate(sizes))
    return (take(batch, end - size, end) for size, end in zip(sizes, ends, strict=True))


def gathered(model: nn.Module, batches: Iterator[Batch] | list[Batch], **settings: Any) -> Fisher:
    found = FisherAccumulator(**settings)
    found.start(model)
    examples = 0
    with InFloat64():
        for batch in batches:
            found.update(model, batch)
            examples += len(next(iter(batch.values())))
    return found.finish(found.sums(), {"architecture": "", "basis": "", "examples": examples, "settings": {}})


def assert_equal(
    found: Fisher, expected: dict[str, Tensor], tolerance: float = 1e-11, dtype: torch.dtype = torch.float64
) -> None:
    """To rounding, relative to each parameter's largest value; parameters without a gradient are left out.

    A gradient that is zero but for rounding, such as a key bias's, is at most a thousand roundings of the largest one,
    and its square that squared.

    Args:
        found: what was gathered.
        expected: by parameter name.
        tolerance: relative to a parameter's largest value.
        dtype: what gradients were computed in.
    """
    assert set(found.diagonal) == {name for name, tensor in expected.items() if tensor.any()}
    largest = max(float(tensor.max()) for tensor in expected.values())
    zero = (1000 * torch.finfo(dtype).eps) ** 2 * largest
    for name, tensor in found.diagonal.items():
        allowed = tolerance * float(expected[name].max()) + zero
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=allowed, msg=name)


# The reference: one example at a time, without padding, one number differentiated at a time


def squares(model: nn.Module, number: Tensor, sums: dict[str, Tensor], weight: float = 1.0) -> None:
    model.zero_grad()
    number.backward(retain_graph=True)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.grad is not None:
            sums[name] += weight * parameter.grad.square()
    model.zero_grad()


def log_probabilities(model: nn.Module, single: Batch) -> tuple[Tensor, list[int]]:
    """Of one example, shape ``(places, classes)``, and the label at each place that counts; -100 is not taken."""
    with InFloat64():
        outputs, labels = logits(model, single)[0].log_softmax(-1), single["labels"][0]
    if outputs.ndim == 1:
        return outputs[None], [int(labels)]
    if isinstance(model, GPT2LMHeadModel):
        outputs, labels = outputs[:-1], labels[1:]
    return outputs[labels != -100], labels[labels != -100].tolist()


def brute_force(
    model: nn.Module, batch: Batch, labels: str, chosen: list[list[int]] | None = None
) -> dict[str, Tensor]:
    """Single-example backward passes, averaged; `chosen` takes the place of the batch's labels."""
    sums = {name: torch.zeros_like(p) for name, p in model.named_parameters(remove_duplicate=False)}
    for index in range(EXAMPLES):
        found, own = log_probabilities(model, take(batch, index, index + 1))
        if labels == "empirical":
            own = own if chosen is None else chosen[index]
            squares(model, found[range(len(own)), own].sum(), sums)
            continue
        for place in found:
            for label in place:
                squares(model, label, sums, float(label.detach().exp()))
    return {name: tensor / EXAMPLES for name, tensor in sums.items()}
