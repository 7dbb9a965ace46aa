"""``fusionlab merge``: merge checkpoints that share a basis, without measuring.

Folders of safetensors are merged tensor by tensor where the method lets it. That needs no model, so what models need
(Lightning, transformers' classes) is imported only where there is no other way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from fusionlab.atomic import MIB, atomic_folder, refuse_existing, require_space
from fusionlab.batch_norm import averaged_note
from fusionlab.checkpoints.card import CARD, merge_card
from fusionlab.checkpoints.files import GENERATION_CONFIG, read_json
from fusionlab.checkpoints.fp8 import note as scaled_note
from fusionlab.checkpoints.hub import locate
from fusionlab.commands import merging_options, parsing
from fusionlab.commands.differences import tell_differences
from fusionlab.commands.lost_inputs import refuse_lost_inputs
from fusionlab.commands.merge_informed import described as statistics_described
from fusionlab.commands.merge_informed import is_informed, known_of
from fusionlab.commands.merge_output import progress, tell
from fusionlab.commands.merging_options import MergingOptions
from fusionlab.commands.option_groups import add_fields, options_of
from fusionlab.commands.plain_place import folder_of, is_folder
from fusionlab.commands.pushing import push_output, refuse_unpushable
from fusionlab.commands.repeat import REPEAT, repeat_config, with_hashes
from fusionlab.commands.sentence_modules import merged_modules
from fusionlab.dtypes import find_dtype, main_of, merge_note_of
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method
from fusionlab.paths import expanded
from fusionlab.streaming import (
    Manifest,
    Recipe,
    StoredModel,
    made_of,
    may_stream,
    open_folder,
    open_models,
    refuse_other,
    shard_bytes,
    stream_merge,
    under_one_naming,
    write_side_files,
)

TYPE_CHECKING = False  # most methods do without what knows classes
if TYPE_CHECKING:
    from fusionlab.streaming.informed import Informed

DESCRIPTION = """Merge checkpoints as they are into one of the same format.

Of Lightning files a plain folder is written beside the .ckpt too, or alone where the output does not end in .ckpt.
Fine-tunes of one base can be merged at once; models of different origin should be matched first (`fusionlab match`),
or use `fusionlab fuse`, which matches, merges and measures."""
# What a launcher tells each of several processes.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")


@dataclass(frozen=True)
class MergeOptions:
    """Options of the files that are written.

    Attributes:
        max_shard_size: most that a weight file of a transformers folder holds, such as 5GB; as in the first model if
            None.
        written_as: ``model``, or ``lora`` for a LoRA adapter on the base model.
        rank: of each change in an adapter; 16 if None.
    """

    max_shard_size: str | None = None
    written_as: Literal["model", "lora"] = "model"
    rank: int | None = None


# As transformers' users know it.
_SHARD_FLAG = "--max-shard-size"
_AS_FLAG = "--as"
# Options that say all about a merge that looks at files alone.
_PLAIN = {_SHARD_FLAG, _AS_FLAG, "--names", "--architecture"} | {
    f"--{name}" for name in options_of((parsing.SharedOptions, MergingOptions, MergeOptions))
}


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    plain = all(word.partition("=")[0].partition(".")[0] in _PLAIN for word in argv if _is_option(word))
    if not plain:
        from fusionlab.commands import own_data  # noqa: PLC0415 - imports Lightning

        argv = own_data.written_out(argv, several=False)
    parser = _parser(plain)
    arguments = parsing.parse(parser, argv)
    repeat = repeat_config(parser, argv)
    if not plain:
        from fusionlab.commands import data_options  # noqa: PLC0415 - imports Lightning

        data_options.trainer_options(arguments)  # refused before any work, also where nothing will run on them
    if arguments.rank is not None and arguments.written_as != "lora":
        raise InputError("rank is that of a LoRA adapter; expected --as lora with --rank")
    output, first = expanded(arguments.output), next(iter(arguments.ckpts), None)
    refuse_existing(output, arguments.overwrite, arguments.resume)
    # An adapter is a folder, whatever it is made of; so is what Lightning files become without their ending.
    plain_one = first is not None and is_folder(output, expanded(first))
    like = None if arguments.written_as == "lora" or plain_one else first
    if like is not None and (folder := folder_of(output, expanded(like))) is not None:
        refuse_existing(folder, arguments.overwrite)
        refuse_lost_inputs(arguments, folder)
    refuse_unpushable(arguments, like)
    find_dtype(arguments.dtype)
    if arguments.max_shard_size is not None:
        shard_bytes(arguments.max_shard_size)
    merging_options.refuse_missing(arguments)
    merging_options.refuse_unused_statistics(arguments)
    tell_differences(arguments.ckpts, arguments.names)
    if _looks_at_files_alone(arguments) and _by_files(arguments, repeat):
        push_output(arguments, output)
        return
    if arguments.resume:
        raise InputError(
            "resume goes on with complete weight files, and this merge holds whole models in memory, which leaves "
            "none; expected no --resume"
        )
    from lightning.pytorch.utilities import rank_zero_only  # noqa: PLC0415

    from fusionlab.commands import merge_models  # noqa: PLC0415 - imports what streaming does without

    merge_models.run(parsing.parse(_parser(plain=False), argv) if plain else arguments, argv, repeat)
    rank_zero_only(push_output)(arguments, output)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and not word.startswith("-.")


def _parser(plain: bool) -> ArgumentParser:
    """The command's parser.

    Args:
        plain: whether it has the options of `_PLAIN` alone.
    """
    parser = parsing.make_parser("merge", DESCRIPTION)
    parsing.add_checkpoints(parser)
    parsing.add_names(parser)
    parsing.add_architecture(parser)
    parsing.add_output(parser)
    parsing.add_resume(parser)
    parsing.add_push(parser)
    parsing.add_json(parser)
    add_fields(
        parser,
        MergeOptions,
        changes={
            "max_shard_size": {"flags": (_SHARD_FLAG,)},
            "written_as": {"flags": (_AS_FLAG,), "dest": "written_as"},
        },
    )
    merging_options.add_merging(parser, listed=not plain)
    if not plain:
        from fusionlab.commands import data_options  # noqa: PLC0415 - imports Lightning
        from fusionlab.commands.example import add_example  # noqa: PLC0415

        add_example(parser)
        data_options.add_inputs(parser)
        data_options.add_devices(parser)
    return parser


def _looks_at_files_alone(arguments: Namespace) -> bool:
    """True if nothing but files of weights, and of statistics that a method needs, may be looked at by one process."""
    given = [arguments.get(name) for name in ("example", "probes", "samples", "length")]
    if arguments.statistics is not None and (arguments.written_as == "lora" or not is_informed(arguments)):
        return False
    return reads_files() and all(value is None for value in given)


def reads_files() -> bool:
    """True if files can be read and written a piece at a time here, which one process does."""
    positioned = hasattr(os, "preadv") and hasattr(os, "pwrite")  # not on Windows
    return positioned and not any(name in os.environ for name in _RANKS)


def _by_files(arguments: Namespace, repeat: str) -> bool:
    """Merge by files alone where these models and this method admit it; False where nothing was done.

    Raises:
        InputError: options or checkpoints that do not fit; nothing has been written then.
    """
    if arguments.written_as == "lora":
        from fusionlab.commands import merge_lora  # noqa: PLC0415 - imports transformers

        return not arguments.resume and merge_lora.run(arguments, repeat)
    if (found := _stored(arguments)) is None:
        return False
    models, base = found
    known = known_of(arguments, models) if is_informed(arguments) else None
    if known is None and is_informed(arguments):
        return False
    _stream(arguments, models, base, known, repeat)
    return True


def _stored(arguments: Namespace) -> tuple[dict[str, StoredModel], StoredModel | None] | None:
    """The end models and the base model as they lie on the disk; None where they must be read as models.

    Raises:
        InputError: options or checkpoints that do not fit.
    """
    methods = merging_options.merge_methods(arguments)
    if len(methods) > 1:
        raise InputError(f"method names {', '.join(methods)}; expected one (fuse compares several)")
    method = find_method(next(iter(methods)))
    if (method.unit == "model" and not is_informed(arguments)) or len(arguments.ckpts) < 2:
        return None
    opened = open_models(arguments.ckpts, arguments.names, arguments.base)
    models = {name: model for name, model in opened.items() if model is not None}
    if len(models) < len(opened):
        return None
    needed = "base" in method.requires(**methods[method.name])
    path = merging_options.base_path(arguments, models, needed)
    base = None if path is None else open_folder(path, locate(path))
    if path is not None and base is None:
        return None
    if base is None and needed:
        raise method.missing("base")
    named = under_one_naming([*models.values(), *([] if base is None else [base])])
    models = dict(zip(models, named, strict=False))
    base = None if base is None else named[-1]
    return (models, base) if may_stream(list(models.values()), base, method) else None


def _stream(
    arguments: Namespace,
    models: Mapping[str, StoredModel],
    base: StoredModel | None,
    known: Informed | None,
    repeat: str,
) -> None:
    """Merge tensor by tensor, write, and tell how far the merge is from each model."""
    dtype, output = find_dtype(arguments.dtype), expanded(arguments.output)
    ((name, values),) = merging_options.merge_methods(arguments).items()
    weights = merge_weights(arguments.weights, len(models))
    recipe = Recipe(find_method(name), values, weights, arguments.seed, dtype)
    first, *_ = stored = list(models.values())
    if arguments.max_shard_size is not None and first.format != "transformers":
        raise InputError(f"{first.source} is a {first.format} checkpoint; expected a transformers folder to shard")
    most = None if arguments.max_shard_size is None else shard_bytes(arguments.max_shard_size)
    planned = recipe.types(stored)
    size = sum(tensor.size for tensor in planned.values())
    done, described = 0, None
    if arguments.resume:
        options: dict[str, object] = {
            "the command": "merge",
            "max_shard_size": most,
            **merging_options.described(arguments),
        }
        of_base = {} if base is None else {"that all come from": base}
        options |= {"weights": weights, "dtype": arguments.dtype, **statistics_described(arguments)}
        described = made_of(options, {**models, **of_base})
        done = refuse_other(output, described)
    require_space(output, size - done + MIB)
    if (generation := first.location / GENERATION_CONFIG).is_file():
        read_json(generation)
    modules, told = merged_modules(models, recipe, arguments.base)
    merging_options.begin_hashes(models, arguments)
    start = time.perf_counter()
    with atomic_folder(output, arguments.overwrite, arguments.resume) as temporary:
        manifest = None if described is None else Manifest(temporary, described)
        with progress("merging", size) as advance:
            if known is None:
                merged = stream_merge(stored, base, recipe, temporary, most, advance, manifest)
            else:
                merged = known.merge(stored, recipe, temporary, most, advance, manifest)
        seconds = time.perf_counter() - start
        made = {"matching": "none", **merging_options.described(arguments)}
        parents = merging_options.parents(models, arguments)
        card = merge_card(parents, made, first.format)
        main = main_of((tensor.dtype, tensor.count) for tensor in planned.values())
        write_side_files(first, temporary, main, {CARD: card, REPEAT: with_hashes(repeat, parents), **modules})
    note = merge_note_of({model: one.main_dtype for model, one in models.items()}, dtype)
    notes = [
        *[scaled_note(one.source, one.config) for one in stored if one.is_scaled],
        *([note] if note else []),
        *([averaged_note()] if merged.averaged else []),
        *told,
    ]
    tell(name, seconds, list(zip(models, weights, merged.distances, strict=True)), notes, output)
