"""`fusionlab shrink` of models that are larger than memory: each part is read, cut and written by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jsonargparse import Namespace
from torch import Tensor
from transformers import PreTrainedModel

from fusionlab import checkpoints
from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints import huggingface
from fusionlab.checkpoints.beside import write_beside
from fusionlab.checkpoints.card import CARD
from fusionlab.checkpoints.files import weight_files
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.side_files import copy_side_files
from fusionlab.checkpoints.sizes import memory
from fusionlab.checkpoints.weightless import Weightless, described_by, without_memory
from fusionlab.commands.match_parts import NotByPartsError
from fusionlab.commands.match_stream import IN_MEMORY, INPUTS
from fusionlab.commands.merge_output import progress
from fusionlab.commands.shrink_output import card, tell
from fusionlab.dtypes import main_of
from fusionlab.errors import InputError
from fusionlab.growing import Shrinkage
from fusionlab.growing.choices import difference, exact_choice
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.epsilons import other_epsilon
from fusionlab.growing.shrinking import decided, kept_layers, refuse_tied, shorter, shrunk_sizes
from fusionlab.printing import size_words
from fusionlab.streaming import open_folder
from fusionlab.streaming.grown import GrowingParts, Grown
from fusionlab.streaming.running import Provide, logits_of
from fusionlab.streaming.shards import ONE_FILE, largest_file, like, written
from fusionlab.streaming.shrunk import NoAccount, ShrinkingParts, Shrunk, Smaller, folded_parts, in_large, smaller
from fusionlab.streaming.twins import PartReader
from fusionlab.symmetry.any_model import blueprint

# Makes another model of the shrunk one, in memory.
Polishing = Callable[[PreTrainedModel], PreTrainedModel]


def by_parts(
    arguments: Namespace, output: Path, alone: Path | None, names: Sequence[str], polishing: Polishing | None = None
) -> list[str] | None:
    """Shrink a part at a time where the model is large and may be cut so; write, and tell what was done.

    Args:
        arguments: of the command.
        output: to write.
        alone: the folder of a config that gives the size by itself, or None.
        names: of both models.
        polishing: of the shrunk model; None where it stays as it was cut.

    Returns:
        None where all is done; else what is to be known of why the whole model must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit, or a model that cannot be cut; nothing has been written
            then.
    """
    if arguments.example is not None:
        return []
    stored, folder = open_folder(arguments.ckpt, locate(arguments.ckpt)), alone or locate(arguments.like)
    other = None if alone is not None else open_folder(arguments.like, folder)
    if stored is None or stored.format != "transformers" or (alone is None and other is None):
        return []
    if stored.size < IN_MEMORY:
        return []
    if polishing is not None and stored.size > memory():
        raise InputError(
            f"polish runs {arguments.ckpt} in memory, which takes {size_words(stored.size)} of the "
            f"{size_words(memory())} that this machine has; expected shrink without --polish"
        )
    try:
        both = smaller(stored, described_by(folder, with_model=other is not None), arguments.untie)
        if both is None:
            raise NotByPartsError("the tensors of one are stored in another way than its class has them")
        _run(both, arguments, output, names, polishing)
    except NotByPartsError as error:
        return [f"The whole model was held in memory: {error}."]
    return None


def _run(both: Smaller, arguments: Namespace, output: Path, names: Sequence[str], polishing: Polishing | None) -> None:
    """Decide, make and write the shrunk model, and tell."""
    stored, small, large = both.stored, both.small, both.large
    refuse_tied(small.model, blueprint(large.model), blueprint(small.model))
    with stored.opened() as opened:
        reader = PartReader(opened, large)
        places = kept_layers(small.model, large.model, lambda: folded_parts(large, reader))
        fit = _Fit(both, in_large(both, places, reader))
        cutting = ShrinkingParts(fit.embedding, both, stored.dtypes)
        found = decided(fit.embedding, fit.widening, cutting.read(reader))
        of_large = PartReader(opened, both.made)
        reference = _logits(both.made, lambda name: of_large.read([name])[name], large)
        differs = difference(_logits(small, Shrunk(cutting, reader, found), large), reference)
        shrinkage = Shrinkage(
            small.model, shrunk_sizes(fit.embedding.small, fit.widening), shorter(places), both.parameters, differs
        )
        plan = cutting.planned()
        size = sum(tensor.size for tensor in plan.values())
        require_space(output, size + MIB)
        files = like(stored, plan, largest_file(stored) or ONE_FILE)
        with atomic_folder(output, arguments.overwrite) as folder:
            with progress("shrinking", size) as advance, written(folder, files, plan) as writer:
                cutting.write(lambda: Shrunk(cutting, reader, found), writer, advance)
            config = small.model.config
            config.architectures = [type(small.model).__name__]
            config.dtype = main_of((one.dtype, one.count) for one in plan.values())
            config.save_pretrained(folder)
            if polishing is not None:
                _polish(folder, polishing, stored.location)
            text = card(shrinkage, names, stored.location, stored.format, arguments.polish)
            copy_side_files(stored.location, folder, {CARD: text}, stored.adapter)
            write_beside(folder, {CARD: text})
    tell(shrinkage, names[0], output, ["Each part was read, cut and written by itself."])


def _polish(folder: Path, polishing: Polishing, location: Path) -> None:
    """Write the polished model in the place of the shrunk one."""
    model = checkpoints.read(folder).model
    assert isinstance(model, PreTrainedModel)
    for file in weight_files(folder):
        file.unlink()
    huggingface.write_folder(polishing(model), folder, location)


class _Fit:
    """The smaller architecture in the large model's, exactly, by numbers of no account.

    Attributes:
        embedding: of the one in the other.
        widening: the maps.
    """

    def __init__(self, both: Smaller, embedding: Embedding) -> None:
        self.embedding, small, large = embedding, both.small, both.large
        model = NoAccount(small)
        files = {name: (torch.float64, 1) for group in small.groups.values() for name in group.stored}
        growing = GrowingParts(embedding, small, large, files)

        def with_numbers(changed: PreTrainedModel) -> Tensor:
            return _logits(replace(small, model=changed), model, small)

        with without_memory():
            epsilon = other_epsilon(small.model, large.model, with_numbers)
        found = exact_choice(
            embedding,
            small.model,
            large.model,
            lambda widening: _logits(large, Grown(growing, model, widening), small),
            with_numbers(small.model),
            epsilon,
        )
        self.widening = found.widening


def _logits(model: Weightless, provide: Provide, inputs_of: Weightless) -> Tensor:
    """Logits of a model on random inputs that another one takes.

    Raises:
        NotByPartsError: its modules read one another's parameters.
    """
    try:
        return logits_of(model.model, provide, blueprint(inputs_of.model).inputs, 0, INPUTS)
    except (RuntimeError, TypeError) as error:
        raise NotByPartsError(f"the modules of a {type(model.model).__name__} do not run by themselves") from error
