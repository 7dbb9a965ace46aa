"""`fusionlab fuse` of models that are larger than memory, without data: which of them are fused a part at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from jsonargparse import Namespace

from fusionlab.advice import Choice
from fusionlab.checkpoints.hub import locate
from fusionlab.commands import match_stream, merging_options
from fusionlab.commands.fuse_choice import asks_for_whole
from fusionlab.commands.fuse_files import FusionOfFiles
from fusionlab.commands.match_parts import NotByPartsError, leave_to_memory, refuse_mean, refuse_whole
from fusionlab.commands.merge import reads_files
from fusionlab.commands.merge_informed import is_informed
from fusionlab.commands.sizes_stream import OneSize, of_one_size
from fusionlab.commands.unknown_class import refuse_matching, unknown_among
from fusionlab.errors import InputError
from fusionlab.experiment import Plan
from fusionlab.merging import find_method
from fusionlab.merging.registry import MergeMethod
from fusionlab.paths import expanded
from fusionlab.streaming import StoredModel, may_stream, open_folder, open_models, under_one_naming
from fusionlab.streaming.knowing import informed


def by_parts(
    arguments: Namespace, plan: Plan, command: str, repeat: str, choice: Choice | None = None
) -> list[str] | None:
    """Fuse a part at a time where models are large and may be fused so; write, and tell what was done.

    Args:
        arguments: of the command.
        plan: that they describe.
        command: as it was given, for the report.
        repeat: a config that repeats the command.
        choice: of the matching, where advice made it.

    Returns:
        None where all is done; else what is to be known of why whole models must be held in memory.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    whole = asks_for_whole(arguments) or plan.correct
    if whole or plan.heads != "merged" or len(plan.methods) > 1 or not reads_files():
        return []
    ((method, values),) = plan.methods.items()
    merges, needs = find_method(method), set(find_method(method).requires(**values))
    by_parts = is_informed(arguments)
    if plan.anchor == "nearest" or not (by_parts or (merges.unit != "model" and needs <= {"base"})):
        return []
    found = open_models(arguments.ckpts, arguments.names, arguments.base)
    models = {label: model for label, model in found.items() if model is not None}
    if unknown_among(models) is None and match_stream.is_small(models, arguments):
        return []
    refuse_matching(models, plan.matchings)
    path = merging_options.base_path(arguments, models, "base" in needs)
    if path is None and "base" in needs:
        return []  # refused there
    base = None if path is None else open_folder(path, locate(path))
    with ExitStack() as stack:
        try:
            if len(models) < len(found) or (base is None) != (path is None):
                raise NotByPartsError("not all are stored as folders of safetensors")
            sized = OneSize(models, models)
            named = under_one_naming([*models.values(), *([] if base is None else [base])])
            if not _agree(models, named, merges):
                sized = stack.enter_context(_grown(models, arguments, plan, base))
                named = under_one_naming(list(sized.models.values()))
                if not (sized.growths and _agree(sized.models, named, merges)):
                    raise NotByPartsError("they differ in names, shapes or configs")
            named = named[: len(models)]
            refuse_mean(len(models), plan.matchings.values())
            given = merging_options.given_statistics(arguments)
            known = informed(named, merges, given, values) if by_parts else None
            if by_parts and known is None:
                raise NotByPartsError("their files or their symmetries are not known")
            fusion = FusionOfFiles(sized, base, plan, choice, named, known, given)
            if not arguments.resume:
                held = [*models.values(), *([] if base is None else [base])]
                leave_to_memory(expanded(arguments.output), fusion.space, fusion.scratch, held)
        except NotByPartsError as error:
            return [f"Whole models were held in memory: {error}."]
        fusion.run(arguments, command, repeat)
    return None


def _grown(
    models: Mapping[str, StoredModel], arguments: Namespace, plan: Plan, base: StoredModel | None
) -> AbstractContextManager[OneSize]:
    """Models that do not agree, those that are smaller than others grown.

    Raises:
        NotByPartsError: their matching is for memory.
    """
    recipes = list(plan.matchings.values())
    for recipe in recipes:
        refuse_whole(recipe)
    refuse_mean(len(models), recipes)
    reasons = {
        "fine-tunes of one base are not": base is not None,
        "statistics are of models as they come": arguments.statistics is not None,
        "nothing goes on with what is grown on the way; fusionlab grow --fill makes them of one size first": bool(
            arguments.resume
        ),
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    return of_one_size(models, expanded(arguments.output), any(recipe.matches for recipe in recipes), why)


def _agree(models: Mapping[str, StoredModel], named: Sequence[StoredModel], method: MergeMethod) -> bool:
    """True if models can be merged as they lie in their files; others may be grown, or are refused.

    Args:
        models: that are merged.
        named: these, and the base model if there is one, with the names of the first where they have others.
        method: that merges them.
    """
    base = named[-1] if len(named) > len(models) else None
    try:
        return may_stream(named[: len(models)], base, method)
    except InputError:
        if unknown_among(models) is not None:
            raise
        return False
