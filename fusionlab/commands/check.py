"""``fusionlab check``: what models are, and how they can be matched and merged, before any work.

Models are refused by the code that `merge`, `match` and `fuse` refuse them by.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jsonargparse import Namespace

from fusionlab import printing
from fusionlab.atomic import MIB, refuse_existing, require_space
from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.sizes import memory
from fusionlab.commands import merging_options, other_tokens, parsing
from fusionlab.commands.check_facts import Facts, facts_of, facts_table, refuse_values, tokens_in
from fusionlab.commands.check_rate import ReadRate, read_rate
from fusionlab.commands.check_sizes import of_sizes
from fusionlab.commands.check_ways import Given, Way, match_ways, merge_ways, ways_table
from fusionlab.commands.match_parts import NotByPartsError, made_of
from fusionlab.commands.merging_options import Located
from fusionlab.commands.option_groups import add_fields
from fusionlab.dtypes import common_types, merge_note_of, stored_size
from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.fusion.heads.of_base import fitted_base
from fusionlab.merging import find_method
from fusionlab.models import common_blueprint
from fusionlab.paths import expanded
from fusionlab.printing import size_words
from fusionlab.streaming import Recipe, StoredModel, may_stream, open_models, under_one_naming
from fusionlab.symmetry import Blueprint, SymmetryError

DESCRIPTION = """Show what models are, and how they can be matched and merged, before any work.

Ends with 0 if the models can be merged as they are, and else with 2 and the sentence that merge would refuse them with.
Nothing is written."""


@dataclass(frozen=True)
class CheckOptions:
    """Options of a look at models.

    Attributes:
        base: the checkpoint that all were fine-tuned from, and that LoRA adapters among them change.
        output: where a merge would be written; its name and disk are looked at too; the working folder's disk
            if not given.
        values: whether all numbers are read, to refuse NaN and infinities now.
    """

    base: str | None = None
    output: str | None = None
    values: bool = False


@dataclass(frozen=True)
class Found:
    """Everything that was found out.

    Attributes:
        models: facts by name; the base model last.
        merging: a row for each method; none of a single model.
        matching: a row for each preset.
        size: bytes of a merge.
        free: bytes that are free where it would be written; None where nobody knows.
        reading: the rate at which the files are read here; None where not all are read in pieces.
        notes: sentences.
    """

    models: Mapping[str, Facts]
    merging: list[Way]
    matching: list[Way]
    size: int
    free: int | None
    reading: ReadRate | None
    notes: list[str]


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: models that cannot be merged, or an output that cannot be written.
    """
    parser = parsing.make_parser("check", DESCRIPTION, seed=False)
    parsing.add_checkpoints(parser)
    parsing.add_names(parser)
    parsing.add_architecture(parser)
    parsing.add_json(parser)
    add_fields(parser, CheckOptions)
    add_fields(parser, parsing.SharedOptions, ("overwrite",))
    arguments = parsing.parse(parser, argv)
    output = None if arguments.output is None else expanded(arguments.output)
    if output is not None:
        refuse_existing(output, arguments.overwrite)
    paths = [*arguments.ckpts, *([] if arguments.base is None else [arguments.base])]
    names = None if arguments.names is None else [*arguments.names, *(["base"] if arguments.base is not None else [])]
    opened = open_models(paths, names, arguments.base)
    sources = dict(zip(opened, paths, strict=True))
    models: dict[str, StoredModel | Checkpoint] = {name: model for name, model in opened.items() if model is not None}
    others = [name for name in opened if name not in models]
    read = parsing.read_all([sources[name] for name in others], None, arguments.base, others) if others else {}
    models = {name: models[name] if name in models else read[name] for name in opened}
    facts = _facts(models, sources)
    printing.results().print(facts_table(facts))
    if arguments["values"]:  # an attribute of that name is a method
        for model in models.values():
            if isinstance(model, StoredModel):
                refuse_values(model)
    try:
        found = _found(arguments, models, facts, output)
    except InputError:
        if arguments.base is None:
            _tell_sizes(facts, {name: model for name, model in models.items() if isinstance(model, StoredModel)})
        raise
    _tell(found, output)
    document, rate = asdict(found), found.reading
    if rate is not None:
        document["reading"]["expected"] = rate.expected
    printing.publish(document)


def _facts(models: Mapping[str, StoredModel | Checkpoint], sources: Mapping[str, str]) -> dict[str, Facts]:
    tokens = {name: tokens_in(sources[name]) for name in models}
    first = next(iter(tokens.values()))
    return {name: facts_of(model, tokens[name], first) for name, model in models.items()}


def _found(
    arguments: Namespace,
    models: Mapping[str, StoredModel | Checkpoint],
    facts: Mapping[str, Facts],
    output: Path | None,
) -> Found:
    """All that can be said of models that can be merged.

    Raises:
        InputError: they cannot.
    """
    if len(models) < 2 + (arguments.base is not None):
        return Found(
            facts, [], [], 0, None, None, ["One model alone is complete; two or more are held against each other."]
        )
    stored = {name: model for name, model in models.items() if isinstance(model, StoredModel)}
    ends = under_one_naming(list(stored.values())) if stored else []
    last = ends.pop() if arguments.base is not None and ends else None
    units = {"number": "simple", "parameter": "slerp"}
    streams = dict.fromkeys(units, False)
    if len(stored) == len(models):
        streams = {unit: may_stream(ends, last, find_method(method)) for unit, method in units.items()}
    whole: Mapping[str, Checkpoint] = {}
    if not streams["number"]:
        whole = _read(arguments, models)
        named = {name: one.model for name, one in whole.items()}
        base = named.popitem()[1] if arguments.base is not None else None
        Fuser(named, FusionPlan(methods={"simple": {}}), base=base)
        size = stored_size(next(iter(named.values())), common_types(named.values()))
    else:
        simple = Recipe(find_method("simple"), {}, [1 / len(ends)] * len(ends))
        size = sum(tensor.size for tensor in simple.types(ends).values())
    given = _given(arguments, stored, whole, facts, streams)
    if output is not None:
        require_space(output, size + MIB)
    ways, notes = (merge_ways(given), match_ways(given)), _notes(models, facts, given)
    reading = None if len(stored) < len(models) else read_rate(_files(stored.values()))
    return Found(facts, *ways, size, _free(output), reading, notes)


def _files(models: Iterable[StoredModel]) -> list[Path]:
    """The files that models are read from, each once for each model, those of adapters among them."""
    found: list[Path] = []
    for model in models:
        found += dict.fromkeys(file for tensor in model.tensors.values() for file in tensor.files)
        found += model.beside
    return found


def _read(arguments: Namespace, models: Mapping[str, StoredModel | Checkpoint]) -> dict[str, Checkpoint]:
    """All models whole."""
    return {
        name: model
        if isinstance(model, Checkpoint)
        else parsing.read_all([model.source], None, arguments.base, [name])[name]
        for name, model in models.items()
    }


def _given(
    arguments: Namespace,
    stored: Mapping[str, StoredModel],
    whole: Mapping[str, Checkpoint],
    facts: Mapping[str, Facts],
    streams: Mapping[str, bool],
) -> Given:
    made = None
    blueprint: Blueprint | str
    try:
        if not whole:
            try:
                made = made_of(stored)
            except NotByPartsError:
                whole = _read(arguments, stored)
        models = {name: one.model for name, one in (whole or made or {}).items()}
        if whole and arguments.base is not None:
            first, *_, last = models
            models[last] = fitted_base(models[last], models[first]).model
        blueprint = common_blueprint(models)
    except (InputError, SymmetryError) as error:
        blueprint, made = str(error), None
    shapes = frozenset(tuple(tensor.shape) for model in stored.values() for tensor in model.tensors.values())
    if made:  # in files experts may be apart that are merged as one
        shapes |= {tuple(tensor.shape) for tensor in next(iter(made.values())).model.state_dict().values()}
    sizes = tuple(one.bytes for one in facts.values())
    known: Mapping[str, Located] = {**stored, **whole}
    ends = {name: known[name] for name in list(facts)[: len(facts) - (arguments.base is not None)]}
    has_base = merging_options.base_path(arguments, ends, needed=True) is not None
    by_parts = made is not None and all(model.format == "transformers" for model in stored.values())
    return Given(sizes, len(ends), shapes, has_base, streams, blueprint, made, by_parts)


def _free(output: Path | None) -> int | None:
    place = Path.cwd() if output is None else output.absolute()
    folder = next(parent for parent in (place, *place.parents) if parent.exists())
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _notes(models: Mapping[str, StoredModel | Checkpoint], facts: Mapping[str, Facts], given: Given) -> list[str]:
    main = {
        name: model.main_dtype for name, model in list(models.items())[: given.models] if isinstance(model, StoredModel)
    }
    notes = [note] if len(main) == given.models and (note := merge_note_of(main)) else []
    first = next(iter(facts))
    notes += [other_tokens.sentence(name, first, one.other_tokens) for name, one in facts.items() if one.other_tokens]
    if given.streams["number"] and sum(given.sizes) > memory():
        notes.append(
            f"All models together take {size_words(sum(given.sizes))} and this machine has {size_words(memory())} of "
            f"memory: what looks at whole models will not run here."
        )
    return notes


def _tell_sizes(facts: Mapping[str, Facts], stored: Mapping[str, StoredModel]) -> None:
    """Tell what matching takes of models that cannot be merged as they are, where that is because of their sizes."""
    if len(stored) < len(facts) or (sizes := of_sizes(stored)) is None:
        return
    console = printing.results()
    console.print(sizes.note, highlight=False)
    console.print(ways_table("Matching, then", sizes.matching))
    told = {"models": {name: asdict(one) for name, one in facts.items()}, "sizes": asdict(sizes)}
    printing.publish({**told, "notes": [sizes.note]})


def _tell(found: Found, output: Path | None) -> None:
    console = printing.results()
    if found.merging:
        console.print(ways_table("Merging", found.merging))
        console.print(ways_table("Matching", found.matching))
        free = "" if found.free is None else f"; {size_words(found.free)} are free"
        console.print(f"A merge takes {size_words(found.size)}{free} at {output or Path.cwd()}.", highlight=False)
    if found.reading is not None:
        console.print(str(found.reading), highlight=False)
    for note in found.notes:
        console.print(note, highlight=False)
    if found.merging:
        console.print("These models can be merged.", highlight=False)
