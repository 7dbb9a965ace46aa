"""Writes docs/results/inference.md: what is inferred for each of the samples.

python -m tests.symmetry.infer.table
"""

import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fusionlab.atomic import atomic_file
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.trace import Plain, generic
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.cases.sample import Sample
from tests.symmetry.infer.described import built
from tests.symmetry.infer.planted import distance_left

PAGE = Path(__file__).parents[3] / "docs" / "results" / "inference.md"
HEAD = """# What is inferred

One line for each model class of `tests/symmetry/infer/cases`, small and with random weights; no description of any of
them exists. Seconds are of the processor, one thread, tracing included, on a machine that other programs shared.
*MiB* is what the resident memory of the process grows by meanwhile, at most. *Moved* is the share of the parameters
that some space acts on. *Found again* says whether a model that a random element of all groups moved comes back by its
weights alone (to 1e-7 of the distance), or how much of the distance is left: coupled spaces are matched in turn, which
may end in a place that is only locally best. Groups are counted after folding: `GL` every invertible matrix, `O` and
`O1` rotations (`O1` keeps the ones), `C*` rotary planes, `S` permutations, `Z2` signs, `R*` and `R+` factors of any
sign and positive ones. *Left out* is the first of the notes.

Written by `python -m tests.symmetry.infer.table`; shown to be exact by `make test-architectures`.

{summary}

| model | s | MiB | moved | found again | groups | dimension | left out |
|---|---:|---:|---:|---|---|---:|---|
"""


LINUX = Path("/proc/self")
FOUND_AGAIN = 1e-7


@dataclass(frozen=True)
class Row:
    """What is told of one model.

    Attributes:
        name: of the sample.
        seconds: of the processor.
        grown: by how many bytes the resident memory grew, at most.
        found: what was inferred.
        sizes: numbers of each parameter and buffer.
        left: the share of the distance to a planted twin that matching leaves; None where nothing may be planted.
    """

    name: str
    seconds: float
    grown: int
    found: Blueprint
    sizes: dict[str, int]
    left: float | None

    @property
    def share(self) -> float:
        """The share of the parameters that some space acts on."""
        untouched = set(self.found.untouched())
        return sum(size for name, size in self.sizes.items() if name not in untouched) / sum(self.sizes.values())

    @property
    def is_found_again(self) -> bool:
        """A planted twin comes back by its weights alone."""
        return self.left is not None and self.left < FOUND_AGAIN

    def __str__(self) -> str:
        chosen = self.found.after_folding or self.found
        groups = Counter(str(space.group).split("(")[0] for space in chosen.spaces.values())
        told = ", ".join(f"{count} {group}" for group, count in sorted(groups.items())) or "none"
        note = self.found.notes[0].replace("|", "/") if self.found.notes else ""
        note = note if len(note) < 110 else f"{note[:107]}..."
        back = "" if self.left is None else "yes" if self.is_found_again else f"{self.left:.2g} left"
        cost = f"{self.seconds:.1f} | {self.grown / 2**20:.0f}"
        return (
            f"| {self.name} | {cost} | {100 * self.share:.1f} % | {back} | {told} | {chosen.dimension:,} | {note} |\n"
        )


def row(sample: Sample) -> Row:
    """Infer one sample, and look for a planted twin of it."""
    model, inputs = built(sample), sample.inputs(torch.Generator().manual_seed(3))
    gc.collect()
    (LINUX / "clear_refs").write_text("5")  # the largest resident memory is counted anew
    before, start = status("VmRSS"), time.process_time()
    found = infer(model, inputs, sample.name)
    seconds, grown = time.process_time() - start, status("VmHWM") - before
    sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
    state = {name: generic(x, torch.Generator().manual_seed(11)) for name, x in Plain(model).state.items()}
    return Row(sample.name, seconds, grown, found, sizes, distance_left(found, state) if found.spaces else None)


def status(name: str) -> int:
    """A size that Linux tells of this process, in bytes."""
    (found,) = (line for line in (LINUX / "status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(found.split()[1]) * 1024


def summary(rows: Sequence[Row]) -> str:
    """How many models are told whole, and how many are found again."""
    planted = [one for one in rows if one.left is not None]
    whole = sum(not one.found.notes for one in rows)
    return (
        f"Of {len(rows)} models nothing is left out in {whole}, at least 99 % of the parameters are moved in "
        f"{sum(one.share >= 0.99 for one in rows)}; of {len(planted)} planted twins "
        f"{sum(one.is_found_again for one in planted)} are found again."
    )


def main() -> None:
    """Infer every sample and write the page."""
    torch.set_num_threads(1)
    rows = []
    for sample in SAMPLES:
        rows.append(row(sample))
        print(rows[-1], end="", flush=True)
    with atomic_file(PAGE, overwrite=True) as file:
        Path(file).write_text(HEAD.replace("{summary}", summary(rows)) + "".join(map(str, rows)))


if __name__ == "__main__":
    main()
