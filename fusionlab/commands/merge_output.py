"""The bar of bytes that are written, and the table that `fusionlab merge` shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fusionlab import printing


@contextmanager
def progress(what: str, size: int) -> Iterator[Callable[[int], object]]:
    """Show on a terminal how many of the bytes are written, at what rate, and how long it will take.

    Args:
        what: is being done.
        size: the bytes of all.
    """
    if printing.is_quiet() or not (printing.is_verbose() or sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress as bars  # noqa: PLC0415 - takes as long as a small merge

    columns = (
        bars.TextColumn(what),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=printing.progress(), transient=not printing.is_verbose()) as bar:
        task = bar.add_task(what, total=size)
        yield lambda written: bar.advance(task, written)


def tell(
    method: str, seconds: float | None, rows: Sequence[tuple[str, float, float]], notes: Sequence[str], output: Path
) -> None:
    """Print what was merged, for people or for machines.

    Args:
        method: that merged.
        seconds: that it took, where they are known.
        rows: name, weight and distance to the merge of each model.
        notes: sentences to print below.
        output: that was written.
    """
    models = [dict(zip(("model", "weight", "distance"), row, strict=True)) for row in rows]
    printing.publish(
        {"method": method, "seconds": seconds, "models": models, "notes": list(notes), "output": str(output)}
    )
    from rich.table import Table  # noqa: PLC0415 - its first use is the last thing that is done

    table = Table(
        title=f"Merged by {method}" + ("" if seconds is None else f" in {seconds:.2f} s"), title_justify="left"
    )
    table.add_column("model", overflow="fold")
    table.add_column("weight", justify="right")
    table.add_column("distance to the merge", justify="right")
    for name, weight, distance in rows:
        table.add_row(name, f"{weight:.3f}", f"{distance:.4f}")
    console = printing.results()
    console.print(table)
    for note in notes:
        console.print(note, style="dim", highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)
