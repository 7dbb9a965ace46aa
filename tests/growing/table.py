"""Writes docs/results/grown.md: what of each sample of the inference grows exactly, a dimension at a time.

python -m tests.growing.table
"""

from __future__ import annotations

import copy
import gc
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.growing import grown
from fusionlab.symmetry import SymmetryError
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.models import randomize

PAGE = Path(__file__).parents[2] / "docs" / "results" / "grown.md"
Rules = Mapping[Meaning, Callable[[int], int]]
WIDER: Rules = {Meaning.WIDTH: lambda size: 2 * size}
RULES: dict[str, Rules] = {
    "layers": {Meaning.LAYERS: lambda count: count + 1 if count < 3 else 2 * count},
    "units": {Meaning.INNER: lambda size: 2 * size if size % 2 else size * 3 // 2},
    "heads": {Meaning.HEADS: lambda count: 2 * count, Meaning.KEY_VALUE_HEADS: lambda count: 2 * count},
    "width": WIDER,
}
EXACT, REFUSED, NONE, FAULT = "exact", "refused", "none", "fault"
HEAD = """# What grows

One line for each model class of `tests/symmetry/infer/cases` that has a config, small and with random weights: a larger
config has more layers (one more, or twice as many of three or more), more units (half as many again), twice the heads
(and twice the width where a head's follows from it) or twice the width. *exact* is a grown model whose logits are the
small one's, to 1e-8 of the largest in float64, else nothing is returned; *{none}* is a config that has no such size or
lets it not be changed alone. What is refused is refused in a sentence, of which the last column has the first.

Written by `python -m tests.growing.table`.

{summary}

| model | layers | units | heads | width | the sentence |
|---|---|---|---|---|---|
"""


def changed(config: Any, rules: Rules) -> bool:
    """Change every field of a config, and of those inside it, that a rule is about; whether there was one."""
    found = False
    for name, value in list(vars(config).items()):
        if name.startswith("_"):
            continue
        if hasattr(value, "to_dict"):
            found |= changed(value, rules)
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0 and meaning(name) in rules:
            setattr(config, name, rules[meaning(name)](value))
            found = True
        elif name == "layer_types" and isinstance(value, list) and Meaning.LAYERS in rules:
            config.layer_types = (value * 3)[: rules[Meaning.LAYERS](len(value))]
    return found


def larger(small: nn.Module, dimension: str) -> nn.Module | None:
    """A model of a larger config; None where there is none."""
    config: Any = copy.deepcopy(small.config)
    if not changed(config, RULES[dimension]):
        return None
    if dimension == "heads" and not any(meaning(name) is Meaning.HEAD_WIDTH for name in vars(config)):
        changed(config, WIDER)
    try:
        return type(small)(config)
    except Exception:  # a config may refuse what it likes
        return None


def outcomes(small: nn.Module) -> Iterator[tuple[str, str]]:
    """By dimension what came of growing, and the sentence of what was refused."""
    for dimension in RULES:
        large = larger(small, dimension)
        if large is None:
            yield NONE, ""
            continue
        try:
            grown(small, large)
        except InputError as error:
            yield REFUSED, str(error)
        except SymmetryError:  # not of growing: a larger config whose forward pass fails
            yield NONE, ""
        except Exception as error:  # which is a fault, and must not end the table
            yield FAULT, f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            yield EXACT, ""


def lines() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lines of the table, each with what came of its dimensions."""
    for sample in SAMPLES:
        try:
            small = randomize(sample.build(), 0).eval()
        except Exception:  # a sample of another version of transformers
            continue
        if hasattr(getattr(small, "config", None), "to_dict"):
            found = list(outcomes(small))
            sentence = next((told for _, told in found if told), "").replace("|", "/")
            yield (
                f"| {sample.name} | {' | '.join(what for what, _ in found)} | {sentence} |",
                tuple(w for w, _ in found),
            )
            print(sample.name, *(what for what, _ in found), file=sys.stderr, flush=True)
        gc.collect()


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows = list(lines())
    counts = {name: Counter(found[place] for _, found in rows) for place, name in enumerate(RULES)}
    told = "; ".join(
        f"{name}: {count[EXACT]} exact, {count[REFUSED]} refused, {count[FAULT]} faults"
        for name, count in counts.items()
    )
    with atomic_file(PAGE, overwrite=True) as temporary:
        head = HEAD.format(summary=f"{len(rows)} models. {told[0].upper()}{told[1:]}.", none=NONE)
        temporary.write_text(head + "\n".join(line for line, _ in rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
