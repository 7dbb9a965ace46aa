"""`fusionlab grow` of models that are larger than memory: each part is read, grown and written by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from jsonargparse import Namespace
from torch import Tensor
from transformers import PreTrainedModel

from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.card import CARD, grown_card, parent
from fusionlab.checkpoints.files import copy_side_files
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.names import short_names
from fusionlab.checkpoints.weightless import Weightless, described_by, without_memory
from fusionlab.commands.grow_output import tell
from fusionlab.commands.match_parts import NotByPartsError
from fusionlab.commands.match_stream import IN_MEMORY, INPUTS
from fusionlab.commands.merge_output import progress
from fusionlab.dtypes import main_of
from fusionlab.growing import Growth, described
from fusionlab.growing.axes import Widening
from fusionlab.growing.choices import difference, exact_choice
from fusionlab.growing.cost import counting
from fusionlab.growing.epsilons import other_epsilon, other_epsilons
from fusionlab.growing.growth import grown_sizes, numbers_of, side_by_side
from fusionlab.growing.layers import lists_of, placements
from fusionlab.streaming import StoredModel, open_folder
from fusionlab.streaming.grown import GrowingParts, Grown
from fusionlab.streaming.larger import Larger, larger
from fusionlab.streaming.running import Provide, logits_of
from fusionlab.streaming.shards import ONE_FILE, largest_file, like, written
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry.any_model import blueprint


def by_parts(arguments: Namespace, output: Path, alone: Path | None) -> list[str] | None:
    """Grow a part at a time where models are large and may be grown so; write, and tell what was done.

    Args:
        arguments: of the command.
        output: to write.
        alone: the folder of a config that gives the size by itself, or None.

    Returns:
        None where all is done; else what is to be known of why whole models must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit, or a model that cannot be grown; nothing has been written
            then.
    """
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
        if arguments.fill:
            raise NotByPartsError("filling runs the grown model again and again")
        if both is None:
            raise NotByPartsError("the tensors of one are stored in another way than its class has them")
        _run(both, largest_file(other) or largest_file(small) or ONE_FILE, arguments, output)
    except NotByPartsError as error:
        return [f"Whole models were held in memory: {error}."]
    return None


def _run(both: Larger, most: int, arguments: Namespace, output: Path) -> None:
    """Make, check and write the grown model, and tell."""
    small, large, stored = both.small.model, both.large.model, both.stored
    places = placements(small, large, None, lists_of(blueprint(small).stacks))
    embedding = side_by_side(small, large, places)
    inputs = embedding.small.inputs
    growing = GrowingParts(
        embedding, both.small, both.large, {name: (t.dtype, t.count) for name, t in stored.tensors.items()}
    )
    plan = growing.planned()

    def logits(model: Weightless, provide: Provide) -> Tensor:
        try:
            return logits_of(model.model, provide, inputs, 0, INPUTS)
        except (RuntimeError, TypeError) as error:
            raise NotByPartsError(f"the modules of a {type(model.model).__name__} do not run by themselves") from error

    def as_stored(model: Weightless, files: StoredModel) -> tuple[Tensor, int]:
        """Logits of a model of files, and the operations of the products of one pass."""
        with files.opened() as opened, counting() as counter:
            reader = PartReader(opened, model)
            found = logits(model, lambda name: reader.read([name])[name])
        return found, int(counter.get_total_flops()) // INPUTS

    reference, before = as_stored(both.made, stored)
    with stored.opened() as opened:
        reader = PartReader(opened, both.small)

        def compute(widening: Widening) -> Tensor:
            return logits(both.large, Grown(growing, reader, widening))

        def with_numbers(changed: PreTrainedModel) -> Tensor:
            return logits(replace(both.small, model=changed), lambda name: reader.read([name])[name])

        with without_memory():
            other = other_epsilon(small, large, with_numbers)
        found = exact_choice(embedding, small, large, compute, reference, other)
        widening = found.widening
        names = short_names([arguments.ckpt, arguments.like])
        size = sum(tensor.size for tensor in plan.values())
        require_space(output, size + MIB)
        files = like(stored, plan, most)
        with atomic_folder(output, arguments.overwrite) as folder, progress("growing", size) as advance:
            with written(folder, files, plan) as writer:
                growing.write(lambda: Grown(growing, reader, widening), writer, advance)
            _write_config(both, folder, main_of((one.dtype, one.count) for one in plan.values()))
            made = open_folder(str(folder), folder)
            assert made is not None
            written_logits, after = as_stored(both.large, made)
            error = difference(written_logits, reference)
            growth = Growth(
                large,
                grown_sizes(embedding.small, widening),
                tuple(placement for placement in places if placement.deepens),
                (numbers_of(small), numbers_of(large)),
                (before, after),
                found.error,
                error,
                other_epsilons(small, large),
                widening.choice.stretch.length,
                found.effect,
            )
            told = {"grown": described(growth) or "nothing", "logits differ by": f"{error:.1e} of the largest"}
            card = grown_card(parent(names[0], stored.location), names[1], told, stored.format)
            copy_side_files(stored.location, folder, leave_out={CARD: card})
            write_beside(folder, {CARD: card})
    tell(growth, names[0], output, ["Each part was read, grown and written by itself."])


def _write_config(both: Larger, folder: Path, dtype: torch.dtype) -> None:
    config = both.large.model.config
    config.architectures, config.dtype = [type(both.large.model).__name__], dtype
    config.save_pretrained(folder)
