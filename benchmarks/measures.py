"""Matching by weights where the weights are first put in another measure than the plain distance: is any better?

    python benchmarks/measures.py
    python benchmarks/measures.py --page

The first command trains what is missing of the tuning models of `digits_pairs.py` and `assignments.py`, measures
what is missing in `docs/results/measures.json`, and goes on where it was stopped. Then, as the second does alone,
it writes `docs/results/measures.md` from that file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from cells import Cells
from measures_page import page
from measures_tried import TRIED, Measure, in_measure
from optimisers import pairs
from settings import Batch, quiet
from torch import nn

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.inputs import Inputs
from fusionlab.matching.align_models import align_models
from fusionlab.matching.options import GAUGES
from fusionlab.matching.recipe import recipe
from fusionlab.models import common_blueprint, untie
from fusionlab.probes.probes import GENERATED
from fusionlab.stages import run
from fusionlab.statistics import Grams
from fusionlab.statistics.gather import gather

ROOT = Path(__file__).parents[1]
POINTS = 21
# Inputs of a pair that nothing but the models tells of: drawings of digits, texts that the models write.
SYNTHETIC = {"digits": 1000, "gpt2": 256}


class Pair:
    """Two end models in the gauge that matching by weights has, and what they read of inputs.

    Args:
        ends: end models; of tied embeddings, which are untied here.
        inputs: real ones, without labels.
        scored: what the line is measured on.
        kind: one of `SYNTHETIC`.
    """

    def __init__(self, ends: Sequence[nn.Module], inputs: list[Batch], scored: list[Batch], kind: str) -> None:
        free = [untie(end) if kind == "gpt2" else end for end in ends]
        self.ends = [fusionlab.canonical(end, GAUGES) for end in free]
        written = Inputs.synthetic(self.ends, SYNTHETIC[kind], kind=GENERATED if kind == "gpt2" else "auto")
        self.synthetic = [dict(batch) for batch in written.shared]
        self.inputs, self.scored = inputs[:8], scored

    @cache  # noqa: B019 (a pair is kept as long as the command runs)
    def grams(self, is_real: bool) -> list[Grams]:
        """For each end model the Gram matrices of what its linear maps read."""
        batches = self.inputs if is_real else self.synthetic
        found = [gather(end, batches, [Grams.kind])[Grams.kind] for end in self.ends]
        return [one for one in found if isinstance(one, Grams)]

    def measure(self, tried: Measure) -> dict[str, float]:
        """The score and the loss half way, the barrier, and how far the outputs are from the ends'."""
        grams = self.grams(tried.is_real) if tried.moments else [None, None]
        seen = [in_measure(end, tried, gram) for end, gram in zip(self.ends, grams, strict=True)]
        # Folded already: no gain is left, and streams may be rotated.
        chosen = recipe("weights", gauge=GAUGES[:1], relative=tried.relative)
        shared = common_blueprint({f"model {index}": one for index, one in enumerate(seen)})
        found = run(align_models(seen, shared, chosen, anchor=1)).alignments
        twins = [one.apply(end) for one, end in zip(found, self.ends, strict=True)]
        line = fusionlab.barrier(twins[0], twins[1], self.scored, POINTS)
        apart = self._apart(fusionlab.merge(twins, "simple").eval())
        return {"score": line.midpoint_score, "loss": line.midpoint_loss, "barrier": line.barrier, "apart": apart}

    @torch.no_grad()
    def _apart(self, half: nn.Module) -> float:
        """The mean divergence (Kullback-Leibler, nats) of a model from the end models' mean on synthetic inputs."""
        total, count = 0.0, 0
        for batch in self.synthetic:
            mean = sum(end(**batch).logits.softmax(-1) for end in self.ends) / len(self.ends)
            apart = torch.nn.functional.kl_div(half(**batch).logits.log_softmax(-1), mean, reduction="sum")
            total, count = total + float(apart), count + mean[..., 0].numel()
        return total / count


@cache
def kept_pairs(kind: str, models: Path, shakespeare: str) -> list[Pair]:
    """The tuning pairs of a kind."""
    return [Pair(*one, kind) for one in pairs(kind, models, shakespeare)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of end models")
    parser.add_argument("--shakespeare", default=str(ROOT.parent / "shared/data/lm/tiny_shakespeare.parquet"))
    parser.add_argument("--kinds", nargs="+", choices=tuple(SYNTHETIC), default=list(SYNTHETIC), help="of models")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    cells = Cells(args.results / "measures.json")
    for kind in [] if args.page else args.kinds:
        for name, tried in TRIED.items():
            if f"{kind} {name}" not in cells.found:
                each = [pair.measure(tried) for pair in kept_pairs(kind, args.models, args.shakespeare)]
                cells.keep(f"{kind} {name}", {key: [one[key] for one in each] for key in each[0]})
                print(f"{kind} {name}", cells.found[f"{kind} {name}"], file=sys.stderr, flush=True)
    with atomic_file(args.results / "measures.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
