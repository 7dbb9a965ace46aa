"""Models that never met: what is left half way between models of different seeds, by every way to match them.

    python benchmarks/different_seeds.py --rows demo data many none few tasks widths --markdown results.md
    python benchmarks/different_seeds.py --rows cifar --cifar ../shared/data

Everything is trained from scratch on scikit-learn's digits (or, for `cifar`, loaded), matched on training images only,
without labels unless a row says so, and measured on the 397 test images that nothing else ever sees. `--threads` is for
each matrix product: these models are too small to gain from more than one.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fusionlab
import fusionlab.tasks
from fusionlab import configs
from fusionlab.atomic import atomic_file
from fusionlab.data import Digits, Images
from fusionlab.fusion import score_of
from fusionlab.head_fusion import UnionHeadsFusionModule
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions, polish
from fusionlab.probes import probes

Batch = dict[str, Tensor]
Models = Sequence[nn.Module]
POINTS = 11


@dataclass(frozen=True)
class Line:
    """One line of the table: accuracies and barriers over several groups of models."""

    setting: str
    variant: str
    accuracies: tuple[float, ...]
    barriers: tuple[float, ...] = ()
    seconds: float = 0.0

    def cells(self) -> list[str]:
        """The mean and the worst of what was measured."""
        mean, worst = 100 * fmean(self.accuracies), 100 * min(self.accuracies)
        several = len(self.accuracies) > 1
        barrier = f"{fmean(self.barriers):.3f}" if self.barriers else ""
        highest = f"{max(self.barriers):.3f}" if self.barriers and several else ""
        each = f"{self.seconds / len(self.accuracies):.1f}" if self.seconds else ""
        return [self.setting, self.variant, f"{mean:.1f}", f"{worst:.1f}" if several else "", barrier, highest, each]


HEADS = ("setting", "variant", "accuracy", "worst", "barrier", "highest", "seconds")


def loader(data: Any, count: int | None = None, labels: bool = False) -> list[Batch]:
    """Batches of a loader's data in a fixed order, its first samples only, with labels or without."""
    chosen: list[Batch] = []
    left = count
    for batch in DataLoader(data.dataset, batch_size=128, collate_fn=data.collate_fn):
        taken = {name: value[:left] for name, value in batch.items() if labels or name != "labels"}
        chosen.append(taken)
        if left is not None:
            left -= len(next(iter(taken.values())))
            if left <= 0:
                break
    return chosen


def accuracy(model: nn.Module, test: Sequence[Batch]) -> float:
    """Accuracy on test batches."""
    return score_of(model.eval(), [test])


def barrier(twins: Models, test: list[Batch]) -> float:
    """The highest barrier on the lines from the last twin to the others."""
    return max(fusionlab.barrier(twins[-1], twin, test, POINTS).barrier for twin in twins[:-1])


@functools.cache
def digits_model(seed: int, width: int = 64, classes: tuple[int, ...] | None = None) -> nn.Module:
    """An end model of the demo's config, of another seed, width or set of digits."""
    settings = yaml.safe_load(configs.resolve("vit_digits.yaml").read_text(encoding="utf-8"))
    task = settings["model"]["init_args"]
    task["model"] |= {"hidden_size": width, "intermediate_size": 2 * width}
    seed_everything(seed, verbose=False)
    module = fusionlab.tasks.ImageClassification(**task)
    data = Digits(**settings["data"]["init_args"] | {"classes": None if classes is None else list(classes)})
    trainer = Trainer(
        max_epochs=settings["trainer"]["max_epochs"], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False, limit_val_batches=0, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return module.model.eval()


def matched(setting: str, variant: str, groups: Sequence[Models], test: list[Batch], **how: Any) -> Line:
    """The plain mean of the twins of each group, and the barriers between them."""
    method = how.pop("method", "simple")
    data = how.pop("merge_data", None)
    accuracies, barriers, seconds = [], [], 0.0
    for models in groups:
        start = time.perf_counter()
        twins = fusionlab.align(models, anchor=len(models) - 1, **how)
        merge = fusionlab.merge(twins, method, data=data)
        seconds += time.perf_counter() - start
        accuracies.append(accuracy(merge, test))
        barriers.append(barrier(twins, test))
    return Line(setting, variant, tuple(accuracies), tuple(barriers), seconds)


def end_models(setting: str, groups: Sequence[Models], test: list[Batch]) -> Line:
    """The level to reach: the mean of the end models of each group."""
    return Line(setting, "end models", tuple(fmean(accuracy(m, test) for m in models) for models in groups))


def polished(
    setting: str, variant: str, groups: Sequence[Models], test: list[Batch], inputs: list[Batch], start: str
) -> Line:
    """A short distillation from the plain mean, or from the mean of the twins."""
    accuracies, seconds = [], 0.0
    for models in groups:
        begin = time.perf_counter()
        options: dict[str, Any] = {"data": inputs} if recipe(start).needs_inputs else {}
        merge = fusionlab.merge(fusionlab.align(models, anchor=len(models) - 1, preset=start, **options))
        result = polish(merge, models, inputs, PolishOptions())
        seconds += time.perf_counter() - begin
        accuracies.append(accuracy(result, test))
    return Line(setting, variant, tuple(accuracies), (), seconds)


def digits() -> tuple[DataLoader, list[Batch]]:
    """Training images to look at, and the test set."""
    data = Digits(val_size=0)
    return data.train_dataloader(), loader(data.test_dataloader(), labels=True)


def demo(args: argparse.Namespace) -> Iterator[Line]:
    """The demo's pair, no data used for matching."""
    _, test = digits()
    pair, name = [[digits_model(2), digits_model(1)]], "digits, the demo's pair, no data"
    yield end_models(name, pair, test)
    yield matched(name, "plain mean", pair, test, preset="none")
    yield matched(name, "the paper's matching", pair, test, preset="paper")
    yield matched(name, "permutations (Git Re-Basin)", pair, test, preset="git-rebasin")
    yield matched(name, "optimal transport (OT-WTS)", pair, test, preset="none", method="ot")
    yield matched(name, "weights", pair, test, preset="weights")


def data(args: argparse.Namespace) -> Iterator[Line]:
    """The demo's pair with training images."""
    train, test = digits()
    pair, name = [[digits_model(2), digits_model(1)]], "digits, the demo's pair, 1,400 images"
    images, labelled = loader(train), loader(train, labels=True)
    yield matched(name, "optimal transport (OT-ACTS)", pair, test, preset="none", method="ot", merge_data=images)
    yield matched(name, "activations", pair, test, preset="activations", data=images)
    yield matched(name, "weights, RegMean", pair, test, preset="weights", method="regmean", merge_data=images)
    yield matched(name, "learned", pair, test, preset="learned", data=images)
    yield matched(name, "learned, with labels", pair, test, preset="learned", data=labelled, target="labels")
    yield polished(name, "polished from the plain mean", pair, test, images, "none")
    yield polished(name, "polished from weights", pair, test, images, "weights")


def many(args: argparse.Namespace) -> Iterator[Line]:
    """Four and eight models at once."""
    train, test = digits()
    images = loader(train)
    for count in (4, 8):
        models = [digits_model(seed) for seed in range(1, count + 1)]
        name = f"digits, {count} models at once"
        yield end_models(name, [models], test)
        yield matched(name, "plain mean", [models], test, preset="none")
        yield matched(name, "weights", [models], test, preset="weights")
        start = time.perf_counter()
        twins = fusionlab.align(models, preset="learned", data=images, steps=args.steps * (count // 2))
        seconds = time.perf_counter() - start
        yield Line(name, "learned together", (accuracy(fusionlab.merge(twins), test),), (), seconds)
        pairs = list(itertools.combinations(twins, 2))
        yield Line(
            name, "learned together, every pair of them",
            tuple(accuracy(fusionlab.merge(pair), test) for pair in pairs), tuple(barrier(p, test) for p in pairs),
        )  # fmt: skip


def none(args: argparse.Namespace) -> Iterator[Line]:
    """No real data at all: synthetic inputs."""
    _, test = digits()
    pair, name = [[digits_model(2), digits_model(1)]], "digits, synthetic inputs only"
    inputs = probes(pair[0], 4000)
    yield matched(name, "activations", pair, test, preset="activations", data=inputs)
    yield matched(name, "learned", pair, test, preset="learned", data=inputs)
    yield polished(name, "polished from the plain mean", pair, test, inputs, "none")
    yield polished(name, "polished from weights", pair, test, inputs, "weights")
    yield polished(name, "polished from learned", pair, test, inputs, "learned")


def few(args: argparse.Namespace) -> Iterator[Line]:
    """16 to 256 unlabelled images."""
    train, test = digits()
    pair = [[digits_model(2), digits_model(1)]]
    for count in (16, 32, 64, 128, 256):
        name, images = f"digits, {count} unlabelled images", loader(train, count)
        yield matched(name, "learned", pair, test, preset="learned", data=images)
        yield polished(name, "polished from weights", pair, test, images, "weights")
        yield polished(name, "polished from the plain mean", pair, test, images, "none")


def tasks(args: argparse.Namespace) -> Iterator[Line]:
    """Digits 0 to 4 and 5 to 9 from two seeds, merged into one that knows ten; no labels."""
    _, test = digits()
    low, high = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
    models = {"low": digits_model(1, classes=low), "high": digits_model(2, classes=high)}
    own = [Digits(val_size=0, classes=list(half)).train_dataloader() for half in (low, high)]
    inputs = Inputs.from_batches([loader(part) for part in own], 2)
    name = "digits 0-4 and 5-9, ten-way, no labels"
    yield Line(name, "end models", tuple(accuracy(model, test) for model in models.values()))
    for variant, chosen in (("plain mean", None), ("weights", recipe("weights")), ("learned", recipe("learned"))):
        for options in (None, PolishOptions()):
            matchings = {} if chosen is None else {variant: chosen}
            start = time.perf_counter()
            module = UnionHeadsFusionModule(models, matchings, anchor=1, inputs=inputs, polish=options)
            kept = module.fuse().kept
            assert kept is not None
            label = variant if options is None else f"{variant}, polished"
            yield Line(name, label, (accuracy(kept.model, test),), (), time.perf_counter() - start)


def widths(args: argparse.Namespace) -> Iterator[Line]:
    """Ten pairs of five seeds at three widths: every one, not the best."""
    train, test = digits()
    images = loader(train)
    for width in args.widths:
        models = [digits_model(seed, width) for seed in range(1, 6)]
        pairs, name = list(itertools.combinations(models, 2)), f"digits, ten pairs, {width} wide"
        yield end_models(name, pairs, test)
        yield matched(name, "plain mean", pairs, test, preset="none")
        yield matched(name, "the paper's matching", pairs, test, preset="paper")
        yield matched(name, "permutations (Git Re-Basin)", pairs, test, preset="git-rebasin")
        yield matched(name, "weights", pairs, test, preset="weights")
        yield matched(name, "learned", pairs, test, preset="learned", data=images)


def cifar(args: argparse.Namespace) -> Iterator[Line]:
    """Two small ViTs on CIFAR-10 (a JPEG copy), 30,000 training images; the first 4,000 test images."""
    folder = Path(args.cifar) / "models"
    models = [fusionlab.load(folder / f"cifar10_vit_seed{seed}") for seed in (1, 2)]
    pixels = Images(
        str(Path(args.cifar) / "vision" / "cifar10_jpeg"), image_column="image", label_column="label",
        split_column="split", val_size=0, mean=[0.4734] * 3, std=[0.2516] * 3, augment=False, batch_size=128,
    )  # fmt: skip
    pixels.setup("fit")
    pixels.setup("test")
    train, test = loader(pixels.train_dataloader(), 30_000), loader(pixels.test_dataloader(), 4_000, labels=True)
    pair, name = [models], "CIFAR-10 (JPEG), ViT of 4 layers, 96 wide"
    synthetic = probes(models, 6000, mean=[0.4734] * 3, std=[0.2516] * 3)
    yield end_models(name, pair, test)
    yield matched(name, "plain mean", pair, test, preset="none")
    yield matched(name, "the paper's matching", pair, test, preset="paper")
    yield matched(name, "permutations (Git Re-Basin)", pair, test, preset="git-rebasin")
    yield matched(name, "weights", pair, test, preset="weights")
    yield matched(name, "activations", pair, test, preset="activations", data=train[:40])
    yield matched(name, "learned", pair, test, preset="learned", data=train)
    yield polished(name, "polished from the plain mean", pair, test, train, "none")
    yield polished(name, "polished from weights", pair, test, train, "weights")
    yield polished(name, "polished from learned", pair, test, train, "learned")
    yield polished(name, "no real data: polished from weights", pair, test, synthetic, "weights")


ROWS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    row.__name__: row for row in (demo, data, many, none, few, tasks, widths, cifar)
}


def show(lines: Sequence[Line]) -> None:
    """The table, accuracies in percent."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title="Half way between models that never met: accuracy (%) and loss barrier")
    for head in HEADS:
        table.add_column(head, justify="left" if head in HEADS[:2] else "right")
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None and before.setting != line.setting:
            table.add_section()
        table.add_row(*line.cells())
    console.print(table)


def markdown(lines: Sequence[Line]) -> str:
    """The table for a page."""
    rows = [HEADS, ["---", "---", *["---:"] * 5], *(line.cells() for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[row for row in ROWS if row != "cifar"])
    parser.add_argument("--cifar", default="../shared/data", help="folder with models/ and vision/cifar10_jpeg/")
    parser.add_argument("--steps", type=int, default=600, help="of learning four models together; twice that for eight")
    parser.add_argument("--widths", nargs="+", type=int, default=[32, 64, 128], help="of the row widths")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="also write the table here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lines: list[Line] = []
    for row in args.rows:
        for line in ROWS[row](args):
            lines.append(line)
            print("  ".join(filter(None, line.cells())), file=sys.stderr, flush=True)
    show(lines)
    if args.markdown:
        with atomic_file(args.markdown, overwrite=True) as path:
            path.write_text(markdown(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
