"""Kinds of models that are trained from other seeds and made one of two, and the ways that are measured of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encoders_ways import ALPHAS
from pair_plan import Cell, PairPlan, Seeds
from settings import Metric
from trained_rows import CIFAR_DEVIATION, CIFAR_MEAN
from ways import DISTILLED, Given, Seen, Way, transport

RATES: tuple[Given, ...] = ({}, {"learning_rate": 0.0025}, {"learning_rate": 0.005}, {"learning_rate": 0.02})
DISTILLATIONS: tuple[Given, ...] = ({}, {"learning_rate": 5e-4}, {"learning_rate": 2e-3}, {"learning_rate": 4e-3})
TEST: tuple[Seeds, ...] = ((1, 2), (3, 4), (5, 6))
SEEDS = (0, 1, 2)
# Positions on the line between two twins, and how everything computes.
POINTS, PRECISION = 11, "32-true"


@dataclass(frozen=True)
class Kind:
    """Models of one architecture and task.

    Attributes:
        title: of its page.
        about: what is read first there, behind the command.
        config: shipped, that end models are trained by.
        options: of that config that are other ones.
        small: those of tiny models.
        path: the option of the command that says where the data lie.
        plan: pairs, ways, seeds and steps.
        batch_size: examples in a step of whatever learns.
        inputs: examples to match and to learn with.
        scored: examples that models are scored on.
        metric: that is shown, and that settings are chosen by.
        given: whether models of the tuning pair may lie elsewhere.
        untied: whether input and output embeddings get parameters of their own once models are trained.
        models: what folders of end models are called, before their seeds.
    """

    title: str
    about: str
    config: str
    options: Mapping[str, Any]
    small: Mapping[str, Any]
    path: str
    plan: PairPlan
    batch_size: int
    inputs: int
    scored: int
    metric: Metric
    models: str
    given: bool = False
    untied: bool = False


def _ways(
    seen: Seen, rates: tuple[Given, ...] = RATES, distillations: tuple[Given, ...] = DISTILLATIONS
) -> tuple[Way, ...]:
    """All ways, with what those that look at inputs see, and what is tried of learning and of distillation."""
    return (
        Way("plain mean", "none", "none"),
        Way("the paper's matching", "none", "paper"),
        Way("permutations (Git Re-Basin)", "none", "git-rebasin"),
        Way("optimal transport (OT-WTS)", "none", "none", "ot", transport(0.03, 0.12)),
        Way("`weights`", "none", "weights"),
        Way("RegMean", seen, "none", "regmean", ALPHAS),
        Way("optimal transport (OT-ACTS)", seen, "none", "ot", transport(0.03, 0.12, features="activations")),
        Way("`activations`", seen, "activations"),
        Way("`weights`, merged by RegMean", seen, "weights", "regmean", ALPHAS),
        Way("**`learned`**", seen, "learned", grid=rates),
        Way("distilled from the plain mean", seen, "none", DISTILLED, distillations),
        Way("distilled from the mean after `weights`", seen, "weights", DISTILLED, distillations),
    )


# Which experts and units belong together, with all else as it is; all but which experts do.
IN_EXPERTS, BY_INDEX = "experts,ffn", "residual,heads,attention,ffn"
EXPERTS = (
    Way("experts and the units in them only", "none", "weights", grid=({"spaces": IN_EXPERTS},), variant="experts"),
    Way("`weights`, experts by index", "none", "weights", grid=({"spaces": BY_INDEX},), variant="index"),
)

# Of tied GPT-2s and DeBERTas the largest rates were the best, so that one beyond is tried.
MORE = _ways("texts", (*RATES, {"learning_rate": 0.04}), (*DISTILLATIONS, {"learning_rate": 8e-3}))


def _accuracy(cell: Cell) -> float:
    return float(cell["accuracy"])


def _nearness(cell: Cell) -> float:
    return -float(cell["loss"])


def _sizes(prefix: str, **fields: Any) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in fields.items()}


def _bytes(name: str, models: str, title: str, about: str, **differs: Any) -> Kind:
    """Small language models that read Shakespeare byte by byte."""
    shared: dict[str, Any] = {
        "options": {}, "path": "shakespeare", "batch_size": 16, "inputs": 4_000, "scored": 400, "metric": "loss",
        "plan": PairPlan(((11, 12),), TEST, differs.pop("ways", _ways("texts")), SEEDS, 600, _nearness),
    }  # fmt: skip
    small = {
        **_sizes("trainer", max_epochs=1), **_sizes("data.init_args", max_length=16),
        **_sizes("model.init_args.model", **differs.pop("sizes")),
    }  # fmt: skip
    text = f"""{about} Models see Tiny Shakespeare byte by byte (`{name}`), and one is made of two from other seeds.
4,000 blocks of 128 bytes of the training text, without labels, which are half of it, are there to match and to learn
with. Tables are of 400 blocks of the test text; settings were chosen on 400 of the validation text."""
    return Kind(title=title, about=text, config=name, small=small, models=models, **shared, **differs)


IMAGES = _sizes("data.init_args", image_column="image", num_workers=0, val_size=0, mean=CIFAR_MEAN, std=CIFAR_DEVIATION)
KINDS = {
    "cifar10": Kind(
        title="ViTs on CIFAR-10",
        about="""Two ViTs of 4 layers, 96 wide, are trained from other seeds on the first 30,000 images of CIFAR-10 (as
JPEG copies) for 14 epochs by `vit_cifar10.yaml`, and one model is made of both. 15,000 of those images, without labels,
are there to match and to learn with. Tables are of the first 4,000 test images (one of them is 0.025 points), and
settings were chosen on 4,000 training images that no model is trained on, by which the epoch of an end model is chosen
too. The tuning pair was trained elsewhere, for as many epochs.""",
        config="vit_cifar10.yaml",
        options={
            **IMAGES, **_sizes("trainer", max_epochs=14),
            **_sizes("data.init_args", train_split="train[:30000]", val_split="train[30000:34000]",
                     test_split="test[:4000]"),
            **_sizes("model.init_args.model", num_hidden_layers=4, num_attention_heads=4, hidden_size=96,
                     intermediate_size=192),
        },
        small={
            **_sizes("trainer", max_epochs=1),
            **_sizes("data.init_args", train_split="train[:24]", val_split="train[24:32]", test_split="test[:16]"),
            **_sizes("model.init_args.model", num_hidden_layers=1, num_attention_heads=2, hidden_size=8,
                     intermediate_size=8),
        },
        path="cifar",
        plan=PairPlan(((1, 2),), ((11, 12), (13, 14), (15, 16)), _ways("images"), SEEDS, 600, _accuracy),
        batch_size=64,
        inputs=15_000,
        scored=4_000,
        metric="accuracy",
        given=True,
        models="cifar10_vit",
    ),
    "experts": _bytes(
        "mixtral_shakespeare_small.yaml", "mixtral_shakespeare_small", "Mixtures of experts",
        """Two Mixtrals of 3 layers, 64 wide, with 4 experts of which 2 are chosen. Nobody described this architecture:
experts, their units, heads and the stream are [inferred](../inference.md).""",
        ways=(*_ways("texts")[:4], *EXPERTS, *_ways("texts")[4:]),
        sizes={"max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1,
               "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    **{
        name: _bytes(
            "gpt2_shakespeare_small.yaml", "gpt2_shakespeare_small", f"Small GPT-2s by bytes, {words}", about,
            sizes={"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}, untied=name.endswith("untied"),
            ways=ways,
        )
        for name, words, ways, about in (
            ("gpt2_tied", "embeddings tied", MORE, """Two GPT-2s of 3 layers, 64 wide, whose output embedding is the
input's, as they are trained, so that the stream is permuted and not rotated."""),
            ("gpt2_untied", "embeddings untied", _ways("texts"), """Two GPT-2s of 3 layers, 64 wide, whose output
embedding is untied (`--untie`) once they are trained, so that the stream is rotated."""),
        )
    },
    "deberta": _bytes(
        "deberta_shakespeare_small.yaml", "deberta_shakespeare_small", "Small DeBERTas by bytes",
        """Two DeBERTas of 3 layers, 64 wide, which fill in masked bytes. Their norms come after the sums, so that the
stream is permuted and not rotated.""",
        ways=MORE,
        sizes={"max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
               "num_attention_heads": 2},
    ),
}  # fmt: skip
