"""What a grown model leaves open, used by matching in two further ways: on tuning pairs, beside matching as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from sizes_measures import STEPS, Pair, Size, cell_name
from torch import Tensor

import fusionlab

# By the name of a cell, options of `learned`.
WAYS: dict[str, dict[str, Any]] = {"learned": {"unseen": False}, "unseen": {"unseen": True}}
# A unit that writes less than this writes nothing, after rounding to float32.
NOTHING = 1e-6


def measure(pair: Pair) -> None:
    """The cells of one pair that are missing."""
    for name, options in WAYS.items():
        pair.matched(name, "learned", data=pair.images.train, steps=STEPS, **options)
    pair.cell("splits", lambda: splits(pair))


def splits(pair: Pair) -> dict[str, Any]:
    """How many new units of the small model's twin would be nearer to the large one's as halves of another unit.

    A new unit writes nothing and reads what the large model's unit in its place reads. It may as well read what another
    unit of the small model reads, and write a share of what that writes, which gives the rest; the share is the best
    one, and the other unit that which is best for the distance.
    """
    small, large = (twin.state_dict() for twin in fusionlab.align(pair.ends, anchor=1, preset="weights"))
    new, better, gain, before = 0, 0, 0.0, 0.0
    for layer in range(pair.size[1]):
        (reads, writes), (their_reads, their_writes) = (_units(state, layer) for state in (small, large))
        is_new = writes.norm(dim=1) < NOTHING
        before += float((reads - their_reads).square().sum() + (writes - their_writes).square().sum())
        if is_new.all():  # a layer that is new as a whole
            continue
        written, wanted, read = writes[~is_new], their_writes[~is_new], reads[~is_new]
        for unit in torch.where(is_new)[0]:
            other = their_writes[unit]
            share = ((written * (written - wanted)).sum(1) + written @ other) / (2 * written.square().sum(1))
            kept, given = (1 - share)[:, None] * written - wanted, share[:, None] * written - other
            split = kept.square().sum(1) + given.square().sum(1) + (read - their_reads[unit]).square().sum(1)
            as_it_is = (written - wanted).square().sum(1) + other.square().sum()
            as_it_is = as_it_is + (reads[unit] - their_reads[unit]).square().sum()
            gained = float((as_it_is - split).max())
            new, better, gain = new + 1, better + (gained > 0), gain + max(gained, 0.0)
    return {"new": new, "better": better, "gain": gain / before}


def _units(state: dict[str, Tensor], layer: int) -> tuple[Tensor, Tensor]:
    """What each unit of a layer reads, bias included, and what it writes, a row for each."""
    name = f"vit.layers.{layer}.mlp"
    reads = torch.cat([state[f"{name}.fc1.weight"], state[f"{name}.fc1.bias"][:, None]], 1)
    return reads.double(), state[f"{name}.fc2.weight"].T.double()


def freedom_text(found: dict[str, Any], sizes: Sequence[Size], pairs: Sequence[int]) -> str:
    """The section of the page, with the rows that are there."""
    pairs = [pair for pair in pairs if any(cell_name("tuning", pair, size, "unseen") in found for size in sizes)]
    rows = [line for size in sizes for name in WAYS for line in _row(found, size, name, pairs)]
    if not rows:
        return ""
    return f"""## What is new, learned too

Entries of a grown model that change nothing are taken from the large model before matching. `learned` goes on to learn
them together with the alignments, or leaves them (`unseen` false). On tuning pairs: accuracy in % half way, the lowest
on the line between the twins, and the barrier of the loss.

| | half way | lowest | barrier | {" | ".join(f"seeds {pair}, {pair + 1}" for pair in pairs)} |
|---|---:|---:|---:|{"---:|" * len(pairs)}
{chr(10).join(rows)}

{_told_of_splits(found, sizes, pairs)}
"""


def _row(found: dict[str, Any], size: Size, name: str, pairs: Sequence[int]) -> Iterator[str]:
    cells = {pair: found.get(cell_name("tuning", pair, size, name)) for pair in pairs}
    known = [cell for cell in cells.values() if cell]
    if not known:
        return
    told = f"{size[1]} layers, {size[0]} wide: `learned`{', `unseen` false' if name == 'learned' else ''}"
    each = " | ".join(f"{100 * cell['accuracy']:.1f}" if cell else "" for cell in cells.values())
    reached, lowest = fmean(c["accuracy"] for c in known), fmean(min(c["line"]) for c in known)
    barrier = fmean(c["barrier"] for c in known)
    yield f"| {told} | {100 * reached:.1f} | {100 * lowest:.1f} | {barrier:.3f} | {each} |"


def _told_of_splits(found: dict[str, Any], sizes: Sequence[Size], pairs: Sequence[int]) -> str:
    cells = [found.get(cell_name("tuning", pair, size, "splits")) for size in sizes for pair in pairs]
    known = [cell for cell in cells if cell]
    new, better = (sum(cell[name] for cell in known) for name in ("new", "better"))
    return f"""A new unit may also read what another unit reads and write a share of what that one writes, a *split*. It
pays where the twin comes nearer to the large model so. Of {new} new units in the {len(known)} twins by `weights`,
{better} would be nearer as the best split of any unit by the best share: what a split takes is the numbers that the new
unit reads, and those are the large model's own. So units are not split."""
