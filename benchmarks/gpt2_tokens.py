"""GPT-2s that read Shakespeare by GPT-2's own tokens, as Theus et al. (2025) merge them: what each way leaves.

    python benchmarks/shakespeare_tokens.py
    python benchmarks/gpt2_tokens.py
    python benchmarks/gpt2_tokens.py --page

The second command trains what is missing in `checkpoints` (25 minutes of a core each), measures what is missing in
`docs/results/gpt2_tokens.json`, and goes on where it was stopped. Then, as the third does alone, it writes
`docs/results/gpt2_tokens.md` from that file. `--pair 2 3` stays with one pair, `--small` goes through it with tiny
models and a step of everything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from gpt2_tokens_page import AT_ONCE, EMBEDDINGS, PAIRS, PRECISION, STEPS, cell_name, ends_name, page, ways_of
from settings import Batch, Setting, batches, quiet, ready
from torch import nn
from ways import MEAN, Way, make

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.commands.end_models import EndModelOptions, train_end_model
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.models import untie

ROOT = Path(__file__).parents[1]
CONFIG = "gpt2_shakespeare_bpe.yaml"
SMALL = {"n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}


class TokenPair:
    """Two GPT-2s of other seeds, and cells about them.

    Args:
        seeds: of both; the second is the anchor.
        cells: where what is measured is kept.
        args: of the command.
    """

    def __init__(self, seeds: tuple[int, int], cells: Cells, args: argparse.Namespace) -> None:
        self.seeds, self.cells, self.args = seeds, cells, args

    @cached_property
    def ends(self) -> list[nn.Module]:
        """Both models, trained where they are not in the folder."""
        return [fusionlab.load(self._trained(seed)).eval() for seed in self.seeds]

    def begin(self) -> None:
        """Measure the losses of both and of their ensemble.

        Where they were measured with other models of the same seeds, as another processor trains them, all other cells
        of the pair are dropped, to be measured with these. Nothing is done where nothing is missing.
        """
        name = ends_name(self.seeds)
        if name in self.cells.found and not self._missing():
            return
        measure = self._setting(self.ends).measure
        found = {"losses": [measure(end) for end in self.ends], "ensemble": [measure(Ensemble(self.ends))]}
        self.cells.begin(name.removesuffix("ends"), found)

    def measure(self, embeddings: str, way: Way) -> None:
        """Measure a cell that is missing.

        Args:
            embeddings: ``tied`` or ``untied``.
            way: to one model.
        """
        name = cell_name(self.seeds, embeddings, way)
        if name in self.cells.found:
            return
        ends = self.ends if embeddings == "tied" else [untie(end) for end in self.ends]
        setting = self._setting(ends)
        learning = {"steps": 1 if self.args.small else STEPS, "batch_size": AT_ONCE}
        made = make(way, {}, ends, self._inputs if way.seen == "texts" else None, learning, precision=PRECISION)
        cell = {"loss": setting.measure(made.model), "seconds": made.seconds}
        if way.then == MEAN:
            cell["barrier"] = setting.barrier(made.twins)
        self.cells.keep(name, cell)
        print(name, *(f"{key} {value:.3f}" for key, value in cell.items()), file=sys.stderr, flush=True)

    def _missing(self) -> bool:
        return any(cell_name(self.seeds, *one) not in self.cells.found for one in asked(self.args))

    def _setting(self, ends: list[nn.Module]) -> Setting:
        return Setting("", [ends], self._tested, "loss")

    @cached_property
    def _data(self) -> Any:
        data = self._options().end_model("data").data
        ready(data)
        return data

    @cached_property
    def _inputs(self) -> list[Batch]:
        """All blocks of the training text, without labels."""
        return batches(self._data.train_dataloader())

    @cached_property
    def _tested(self) -> list[Batch]:
        """All blocks of the test text, which nothing else sees."""
        return batches(self._data.test_dataloader(), labels=True)

    def _options(self) -> EndModelOptions:
        """How a model is trained."""
        options: dict[str, Any] = {
            "trainer.precision": PRECISION,
            "data.init_args.path": str(self.args.text),
            "data.init_args.tokenizer": str(self.args.tokenizer),
        }
        if self.args.small:
            options |= {f"model.init_args.model.{field}": value for field, value in SMALL.items()}
            options |= {"data.init_args.max_length": SMALL["n_positions"], "trainer.max_epochs": 1}
        return EndModelOptions(fit=CONFIG, options=options)

    def _trained(self, seed: int) -> str:
        """The folder of an end model."""
        place = self.args.models / f"gpt2_shakespeare_bpe_seed{seed}"
        if not place.exists():
            train_end_model(self._options().end_model("gpt2"), seed, place)
        return str(place)


def asked(args: argparse.Namespace) -> list[tuple[str, Way]]:
    """Embeddings and ways that are to be measured, in order: what learns comes last."""
    every = [(embeddings, way) for embeddings in args.embeddings for way in ways_of(embeddings)]
    return sorted(every, key=lambda one: one[1].learns)


def main(argv: Sequence[str] | None = None) -> int:
    data = ROOT / ".." / "shared" / "data" / "lm" / "tiny_shakespeare.parquet"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=int, nargs=2, help="seeds of the only pair that is measured")
    parser.add_argument("--embeddings", nargs="+", choices=EMBEDDINGS, default=EMBEDDINGS, help="that are measured")
    parser.add_argument("--text", type=Path, default=data, help="Shakespeare's plays")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "checkpoints" / "gpt2_shakespeare_tokens")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of end models")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--small", action="store_true", help="tiny models, a step of everything")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args(argv)
    quiet(1)
    cells = Cells(args.results / "gpt2_tokens.json")
    if not args.page:
        args.results.mkdir(parents=True, exist_ok=True)
        for seeds in PAIRS if args.pair is None else [tuple(args.pair)]:
            pair = TokenPair(seeds, cells, args)
            pair.begin()
            for embeddings, way in asked(args):
                pair.measure(embeddings, way)
    with atomic_file(args.results / "gpt2_tokens.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
