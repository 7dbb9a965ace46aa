"""`fusionlab merge --as lora`: a merge as a LoRA adapter on its base model.

The mean of adapters is made of their factors alone: neither the base model nor a difference is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jsonargparse import Namespace
from torch import nn

from fusionlab import printing
from fusionlab.checkpoints.adapters import read_adapter
from fusionlab.checkpoints.card import CARD, merge_card
from fusionlab.checkpoints.extraction import Extracted, merged_changes
from fusionlab.checkpoints.hub import locate
from fusionlab.commands import merging_options
from fusionlab.commands.extracted import (
    RANK,
    captured_words,
    refuse_base,
    refuse_rank,
    tell_difference,
    write_difference,
)
from fusionlab.commands.merging_options import Located
from fusionlab.commands.repeat import REPEAT, with_hashes
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.paths import expanded
from fusionlab.streaming import StoredModel, open_models
from fusionlab.streaming.classes import class_of


def run(arguments: Namespace, repeat: str) -> bool:
    """Merge adapters of one base model from their factors, write the adapter and tell.

    Args:
        arguments: of the command.
        repeat: a config that repeats it.

    Returns:
        Whether that was possible; else nothing was done.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    if not _is_mean(arguments) or len(arguments.ckpts) < 2:
        return False
    found = open_models(arguments.ckpts, arguments.names, arguments.base)
    models = {name: model for name, model in found.items() if model is not None}
    if len(models) < len(found) or None in {model.base for model in models.values()}:
        return False
    base = base_of_merge(arguments, models)
    model = _without_weights(next(iter(models.values())))
    weights = merge_weights(arguments.weights, len(models))
    if model is None or (change := changes_of(arguments, models, weights, model)) is None:
        return False
    merging_options.begin_hashes(models, arguments)
    write(arguments, change, model, models, weights, base, texts_of(arguments, models, repeat))
    return True


def _is_mean(arguments: Namespace) -> bool:
    return merging_options.merge_methods(arguments) == {"simple": {}}


def _without_weights(model: StoredModel) -> nn.Module | None:
    made = class_of(model)
    return None if made is None else made.model


def base_of_merge(arguments: Namespace, found: Mapping[str, Located]) -> str:
    """The base model that a merge is written as an adapter on.

    Args:
        arguments: of the command; a rank that was not given is set.
        found: the end models.

    Raises:
        InputError: none is named, or the options do not go together.
    """
    arguments.rank = RANK if arguments.rank is None else arguments.rank
    refuse_rank(arguments.rank)
    if arguments.dtype is not None:
        raise InputError("dtype is of whole models; expected no --dtype with --as lora, whose factors are float32")
    if arguments.max_shard_size is not None:
        raise InputError("max_shard_size is of whole models; expected no --max-shard-size with --as lora")
    base = merging_options.base_path(arguments, found, needed=True)
    if base is None:
        raise InputError("a merge is written as a LoRA adapter on a base model, and none is named; expected --base")
    refuse_base(base)
    return base


def texts_of(
    arguments: Namespace, found: Mapping[str, Located], repeat: str, notes: Sequence[str] = ()
) -> dict[str, str]:
    """The card of an adapter, and the config that repeats the command.

    Args:
        arguments: of the command.
        found: the end models.
        repeat: the config.
        notes: what the merge method told.
    """
    parents = merging_options.parents(found, arguments)
    made = {"matching": "none", **merging_options.described(arguments), **merging_options.found_by_method(notes)}
    card = merge_card(parents, made, "peft")
    return {CARD: card, REPEAT: with_hashes(repeat, parents)}


def changes_of(
    arguments: Namespace, found: Mapping[str, Located], weights: Sequence[float], model: nn.Module
) -> Extracted | None:
    """The weighted mean of adapters from their factors.

    Args:
        arguments: of the command, with a rank.
        found: the end models.
        weights: one for each, summing to 1.
        model: of the class that they change, with weights or without.

    Returns:
        None where they are no adapters of one base model, or are merged by another method, or have more than products
        of two small factors.
    """
    bases = {one.base for one in found.values()}
    if not _is_mean(arguments) or len(bases) > 1 or None in bases or not bases <= {arguments.base or next(iter(bases))}:
        return None
    return merged_changes([read_adapter(locate(one.source)) for one in found.values()], weights, model, arguments.rank)


def write(
    arguments: Namespace,
    change: Extracted,
    model: nn.Module,
    found: Mapping[str, Located],
    weights: Sequence[float],
    base: str,
    texts: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Write the difference of a merge from its base model as an adapter, and tell how much of it that is.

    Args:
        arguments: of the command.
        change: the difference.
        model: of its class.
        found: the end models; of an adapter that is the first, side files are taken.
        weights: one for each.
        base: path or hub id of the base model.
        texts: files to write beside the adapter, by name, its card among them.
        notes: sentences to print.
    """
    output = expanded(arguments.output)
    shares = "".join(f"- {name}: {words}\n" for name, words in captured_words(change).items())
    told = f"{texts[CARD]}\n## Rank {arguments.rank}\n\nShares of the norm of each layer's difference:\n\n{shares}"
    adapter = next(iter(found.values())).adapter
    write_difference(change, model, base, output, arguments.overwrite, {**texts, CARD: told}, adapter)
    tell_difference(change, output, notes)
    printing.publish(
        {
            "method": next(iter(merging_options.merge_methods(arguments))),
            "weights": dict(zip(found, weights, strict=True)),
            "rank": arguments.rank,
            "captured": dict(change.captured),
            "saved_whole": list(change.modules),
            "notes": list(notes),
            "output": str(output),
        }
    )
