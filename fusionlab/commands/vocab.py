"""``fusionlab vocab``: give language models of different vocabularies one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from rich.table import Table
from transformers import PreTrainedModel

from fusionlab import checkpoints, printing
from fusionlab.atomic import MIB, atomic_folder, refuse_existing, require_space
from fusionlab.checkpoints.huggingface import is_transformers
from fusionlab.checkpoints.names import short_names
from fusionlab.checkpoints.quiet import quiet
from fusionlab.commands import parsing
from fusionlab.commands.option_groups import add_fields
from fusionlab.commands.repeat import REPEAT, repeat_config
from fusionlab.data.tokenizers import load_tokenizer
from fusionlab.dtypes import stored_size
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.vocabularies import CHOICES, Joined, join, vocabulary_of
from fusionlab.vocabularies.joining import Choice

DESCRIPTION = """Give language models of different vocabularies one, so that they can be matched and merged.

Every model is written as an ordinary checkpoint whose embeddings have one row for each token that is kept, with one
tokenizer for all. Rows are known by their token's text; one that a model lacks is the mean of those of the others."""

# Files that hold a vocabulary. Those of the tokenizer that is written come along, and no others.
VOCABULARIES = (
    "vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer.model",
    "spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm", "target.spm", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "additional_chat_templates",
)  # fmt: skip


@dataclass(frozen=True)
class VocabularyOptions:
    """The models, and the tokens that are kept.

    Attributes:
        ckpts: language models: transformers folders with their tokenizers, or hub ids.
        base: the checkpoint that all were fine-tuned from; it is written too.
        keep: tokens that are kept.
    """

    ckpts: Sequence[str]
    base: str | None = None
    keep: Choice = "union"


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = _parser()
    arguments = parsing.parse(parser, argv)
    repeat = repeat_config(parser, argv)
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    paths = [*arguments.ckpts, *([] if arguments.base is None else [arguments.base])]
    if len(paths) < 2:
        raise InputError(f"{len(paths)} model was given; expected at least two")
    names = short_names(paths)
    found = {name: checkpoints.read(path) for name, path in zip(names, paths, strict=True)}
    models: dict[str, PreTrainedModel] = {}
    for name, path in zip(names, paths, strict=True):
        model = found[name].model
        if not is_transformers(model) or found[name].format != "transformers":
            raise InputError(f"{path} is a {found[name].format} checkpoint; expected a transformers folder")
        models[name] = model
    rows = {name: getattr(model.config.get_text_config(), "vocab_size", None) for name, model in models.items()}
    for name, count in rows.items():
        if not isinstance(count, int):
            raise InputError(f"{name} is a {type(models[name]).__name__}; expected a model of texts, with a vocab_size")
    known = {n: vocabulary_of(path, rows[n] or 0) for n, path in zip(names, paths, strict=True)}
    joined = join(models, known, arguments.keep, names[-1] if arguments.base is not None else None)
    texts = tokenizer_files(joined)
    require_space(output, sum(stored_size(model) for model in joined.models.values()) + MIB)
    with atomic_folder(output, arguments.overwrite) as temporary:
        (temporary / REPEAT).write_text(repeat, encoding="utf-8")
        for name, model in joined.models.items():
            found[name].write(model, temporary / name, texts=texts)
        made = load_tokenizer(str(temporary / names[0])).get_vocab()
        wanted = {token: number for number, token in enumerate(joined.tokens) if token is not None}
        if odd := sorted(token for token, number in wanted.items() if made.get(token) != number):
            raise InputError(
                f"the tokenizer of {joined.template.source} gives {odd[0]!r} another number than its row's once it is "
                "joined; expected one that keeps the numbers of its tokens, or --keep first"
            )
    before = {name: len(one.tokens) for name, one in known.items()}
    counts = {name: {"tokens": before[name], "rows": rows[name], "taken": joined.taken[name]} for name in joined.taken}
    printing.publish(
        {
            "tokens": sum(token is not None for token in joined.tokens),
            "rows": len(joined.tokens),
            "models": [{"model": name, **count} for name, count in counts.items()],
            "output": str(output),
        }
    )
    console = printing.results()
    console.print(_table(joined, rows, before))
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)


def tokenizer_files(joined: Joined) -> dict[str, str | None]:
    """The files of the tokenizer, by name; None for those of another one that must not come along."""
    files: dict[str, str | None] = dict.fromkeys(VOCABULARIES)
    with tempfile.TemporaryDirectory() as place:
        with quiet():
            joined.template.tokenizer.save_pretrained(place)
        for path in sorted(Path(place).iterdir()):
            if path.is_file():
                files[path.name] = path.read_text(encoding="utf-8")
    files["tokenizer.json"] = json.dumps(joined.described, ensure_ascii=False, indent=2)
    if (config := files["tokenizer_config.json"]) is not None:
        files["tokenizer_config.json"] = json.dumps(_config(json.loads(config), joined), ensure_ascii=False, indent=2)
    # Words and merges by themselves are what older tokenizers read; those here are in one file.
    return files | dict.fromkeys(("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json"))


def _config(config: dict[str, Any], joined: Joined) -> dict[str, Any]:
    """The settings of the tokenizer, whose added tokens are known by their new numbers.

    A token to pad with that only loading gave it is left out.
    """
    if "pad_token" not in joined.template.tokenizer.init_kwargs:
        config = {name: value for name, value in config.items() if name != "pad_token"}
    if "added_tokens_decoder" not in config:
        return config
    fields = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    added = {str(one["id"]): {name: one[name] for name in fields} for one in joined.described["added_tokens"]}
    return config | {"added_tokens_decoder": added}


def _parser() -> ArgumentParser:
    parser = parsing.make_parser("vocab", DESCRIPTION, seed=False)
    choices = {"help": f"Tokens that are kept: {', '.join(CHOICES)}."}
    add_fields(parser, VocabularyOptions, positional=("ckpts",), changes={"keep": choices})
    parsing.add_output(parser)
    parsing.add_json(parser)
    return parser


def _table(joined: Joined, rows: Mapping[str, int | None], tokens: Mapping[str, int]) -> Table:
    """The rows of every model before and after."""
    kept = sum(token is not None for token in joined.tokens)
    table = Table(title=f"One vocabulary of {kept:,} tokens", title_justify="left")
    table.add_column("model", overflow="fold")
    for heading in ("tokens before", "rows before", "rows after", "taken from the others"):
        table.add_column(heading, justify="right")
    for name, taken in joined.taken.items():
        table.add_row(name, f"{tokens[name]:,}", f"{rows[name]:,}", f"{len(joined.tokens):,}", f"{taken:,}")
    return table
