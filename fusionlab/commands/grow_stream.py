"""`fusionlab grow` of models that are larger than memory: each part is read, grown and written by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.card import CARD, grown_card, parent
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.checkpoints.weightless import described_by
from fusionlab.commands.grow_files import GrowingFiles
from fusionlab.commands.grow_output import tell
from fusionlab.commands.match_parts import NotByPartsError, leave_to_memory
from fusionlab.commands.match_stream import IN_MEMORY
from fusionlab.commands.merge_output import progress
from fusionlab.errors import InputError
from fusionlab.growing import described
from fusionlab.growing.growth import CONFIG_ALONE
from fusionlab.streaming import open_folder
from fusionlab.streaming.larger import larger
from fusionlab.streaming.shards import ONE_FILE, largest_file

# Numbers on the way, in the unfinished output.
_SCRATCH = ".fusionlab-scratch"


def by_parts(arguments: Namespace, output: Path, alone: Path | None, names: Sequence[str]) -> list[str] | None:
    """Grow a part at a time where models are large and may be grown so; write, and tell what was done.

    Args:
        arguments: of the command.
        output: to write.
        alone: the folder of a config that gives the size by itself, or None.
        names: of both models.

    Returns:
        None where all is done; else what is to be known of why whole models must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit, or a model that cannot be grown; nothing has been written
            then.
    """
    if arguments.fill and alone is not None:
        raise InputError(CONFIG_ALONE)
    small = open_folder(arguments.ckpt, locate(arguments.ckpt))
    folder = alone or locate(arguments.like)
    other = None if alone is not None else open_folder(arguments.like, folder)
    if small is None or small.format != "transformers" or (alone is None and other is None):
        return []
    largest = max(model.size for model in (small, other) if model is not None)
    if largest < IN_MEMORY and alone is None:
        return []
    both = larger(small, described_by(folder, with_model=other is not None), arguments.untie)
    if max(largest, 0 if both is None else both.size) < IN_MEMORY:
        return []
    try:
        if both is None:
            raise NotByPartsError("the tensors of one are stored in another way than its class has them")
        growing = GrowingFiles(both, other if arguments.fill else None)
        held = [model for model in (small, other) if model is not None]
        leave_to_memory(output, growing.size + growing.beside + MIB, growing.beside, held)
        _run(growing, largest_file(other) or largest_file(small) or ONE_FILE, arguments, output, names)
    except NotByPartsError as error:
        return [f"Whole models were held in memory: {error}."]
    return None


def _run(growing: GrowingFiles, most: int, arguments: Namespace, output: Path, names: Sequence[str]) -> None:
    """Write the grown model, and tell."""
    stored = growing.both.stored
    require_space(output, growing.size + growing.beside + MIB, growing.beside)
    with atomic_folder(output, arguments.overwrite) as folder, progress("growing", growing.size) as advance:
        growth = growing.write(folder, most, advance, folder / _SCRATCH)
        told = {"grown": described(growth) or "nothing", "logits differ by": f"{growth.stored:.1e} of the largest"}
        card = grown_card(parent(names[0], stored.location), names[1], told, stored.format)
        copy_side_files(stored.location, folder, {CARD: card}, stored.adapter)
        write_beside(folder, {CARD: card})
    tell(growth, names[0], output, ["Each part was read, grown and written by itself."])
