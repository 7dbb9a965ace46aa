"""Writes docs/results/inference.md: what is inferred for each of the samples.

python -m tests.symmetry.infer.table
"""

import time
from collections import Counter
from pathlib import Path

import torch

from fusionlab.atomic import atomic_file
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.infer.blueprint import infer
from tests.symmetry.infer.cases import SAMPLES
from tests.symmetry.infer.described import built

PAGE = Path(__file__).parents[3] / "docs" / "results" / "inference.md"
HEAD = """# What is inferred

One line for each model class of `tests/symmetry/infer/cases`, small and with random weights; no description of any of
them exists. Seconds are of the processor, one thread, tracing included, on a machine that other programs shared.
*Moved* is the share of the parameters that some space acts on. Groups are counted after folding: `GL` every invertible
matrix, `O` and `O1` rotations (`O1` keeps the ones), `C*` rotary planes, `S` permutations, `Z2` signs, `R*` and `R+`
factors of any sign and positive ones. *Left out* is the first of the notes.

Written by `python -m tests.symmetry.infer.table`; shown to be exact by `make test-architectures`.

| model | s | moved | groups | dimension | left out |
|---|---|---|---|---|---|
"""


def line(name: str, seconds: float, found: Blueprint, sizes: dict[str, int]) -> str:
    """One model's line of the table."""
    chosen = found.after_folding or found
    groups = Counter(str(space.group).split("(")[0] for space in chosen.spaces.values())
    untouched = set(found.untouched())
    share = sum(size for parameter, size in sizes.items() if parameter not in untouched) / sum(sizes.values())
    told = ", ".join(f"{count} {group}" for group, count in sorted(groups.items())) or "none"
    note = found.notes[0].replace("|", "/") if found.notes else ""
    note = note if len(note) < 110 else f"{note[:107]}..."
    return f"| {name} | {seconds:.1f} | {100 * share:.1f} % | {told} | {chosen.dimension:,} | {note} |\n"


def main() -> None:
    """Infer every sample and write the page."""
    torch.set_num_threads(1)
    lines = []
    for sample in SAMPLES:
        model, inputs = built(sample), sample.inputs(torch.Generator().manual_seed(3))
        start = time.process_time()
        found = infer(model, inputs, sample.name)
        sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
        lines.append(line(sample.name, time.process_time() - start, found, sizes))
    with atomic_file(PAGE, overwrite=True) as file:
        Path(file).write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
