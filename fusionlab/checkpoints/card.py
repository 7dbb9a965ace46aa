"""The model card of what fusionlab writes: what it was made of and how. It copies no claims."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusionlab import __version__
from fusionlab.checkpoints.hashes import hashes_of

CARD = "README.md"
# The head of a card is short; the rest is never looked at.
_HEAD_BYTES = 2**16
_TWIN, _MATCHED = "Twin of", "matched them."
_LICENCE = re.compile(r"^license:[ \t]*(.*(?:\n[ \t]*-.*)*)$", re.MULTILINE)

# A licence as the hub names it.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True)
class Parent:
    """A model that another one was made of.

    Attributes:
        name: of it, as in tables.
        licence: that its own card gives, or None.
        hashes: SHA-256 of its weight files, by name.
    """

    name: str
    licence: str | None
    hashes: Mapping[str, str] = field(default_factory=dict)


def parent(name: str, location: Path, weights: Path | None = None) -> Parent:
    """A model with the licence that its card gives, and the hashes of its weights.

    Args:
        name: of it.
        location: its checkpoint on this machine.
        weights: where its own weights are, if elsewhere: of an adapter, which changes those of its base model.
    """
    return Parent(name, _licence_of(location), hashes_of(location if weights is None else weights))


def hash_lines(parents: Sequence[Parent]) -> list[str]:
    """A line for each weight file of some models, with its SHA-256."""
    named = [(one.name, file, digest) for one in parents for file, digest in one.hashes.items()]
    lines = ((name if Path(name).name == file else f"{name}/{file}", digest) for name, file, digest in named)
    return [f"{place}: sha256 {digest}" for place, digest in lines]


def merge_card(
    parents: Sequence[Parent],
    made: Mapping[str, str],
    library: str,
    scores: Sequence[Sequence[str]] = (),
    index: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The card of a merge.

    Args:
        parents: its end models, and the base model if there is one.
        made: how: method, hyperparameters, matching and so on, in words.
        library: ``transformers`` or ``timm``.
        scores: a table of what was measured, its heads first; empty where nothing was.
        index: the same for hubs, as entries of ``model-index``.
    """
    title = f"Merge of {_listing([one.name for one in parents])}"
    return _card(title, f"This model was merged by fusionlab {__version__}.", parents, made, library, scores, index)


def twin_card(of: Parent, anchor: str, made: Mapping[str, str], library: str) -> str:
    """The card of a matched twin.

    Args:
        of: the model that it computes the same as.
        anchor: the model whose basis it is in.
        made: how it was matched, in words.
        library: ``transformers`` or ``timm``.
    """
    said = (
        f"This model computes what {_code(of.name)} computes. Its weights stand in the basis of {_code(anchor)}, so "
        f"that the two can be merged; fusionlab {__version__} {_MATCHED}"
    )
    return _card(f"{_TWIN} {of.name}", said, [of], made, library)


def is_twin(location: Path) -> bool:
    """True if the card of a checkpoint says that it is a matched twin.

    Args:
        location: the checkpoint on this machine.
    """
    head = _head(location)
    return f"\n# {_TWIN} " in head and _MATCHED in head


def grown_card(of: Parent, like: str, made: Mapping[str, str], library: str) -> str:
    """The card of a model in a larger architecture.

    Args:
        of: the model that it computes the same as.
        like: what gave the architecture.
        made: what was grown, in words.
        library: ``transformers`` or ``timm``.
    """
    said = (
        f"This model computes what {_code(of.name)} computes, in the architecture of {_code(like)}; fusionlab "
        f"{__version__} grew it."
    )
    return _card(f"{of.name}, grown", said, [of], made, library)


def shrunk_card(of: Parent, like: str, made: Mapping[str, str], library: str) -> str:
    """The card of a model in a smaller architecture.

    Args:
        of: the model that it was made from.
        like: what gave the architecture.
        made: how, in words.
        library: ``transformers`` or ``timm``.
    """
    said = (
        f"This model is what the architecture of {_code(like)} holds of {_code(of.name)}; fusionlab {__version__} "
        f"shrank it."
    )
    return _card(f"{of.name}, shrunk", said, [of], made, library)


def adapter_card(of: Parent, base: Parent, made: Mapping[str, str]) -> str:
    """The card of an adapter that stands for a model's difference from its base model.

    Args:
        of: the model.
        base: its base model.
        made: how, in words.
    """
    said = f"This adapter brings {_code(base.name)} close to {_code(of.name)}; fusionlab {__version__} extracted it."
    return _card(f"Adapter of {of.name}", said, [of, base], made, "peft")


def _card(
    title: str, said: str, parents: Sequence[Parent], made: Mapping[str, str], library: str,
    scores: Sequence[Sequence[str]] = (), index: Sequence[Mapping[str, Any]] = (),
) -> str:  # fmt: skip
    rows = {"made from": ", ".join(_code(one.name) for one in parents), **made}
    licences = [f"| {_code(one.name)} | {_cell(one.licence or 'none given in its card')} |" for one in parents]
    agreed = _agreed([one.licence for one in parents])
    said_of_it = (
        f"All models that this one was made from have the licence {agreed}."
        if agreed
        else "The models that this one was made from have these licences. No licence is chosen here: whoever publishes "
        "this model has to choose one that all of them allow."
    )
    hashes = [f"- {_code(line)}" for line in hash_lines(parents)]
    return "\n".join(
        [
            "---",
            f"library_name: {library}",
            *([f"license: {agreed}"] if agreed else []),
            "tags:",
            "- merge",
            "- fusionlab",
            *_index_lines(index),
            "---",
            "",
            f"# {_cell(title)}",
            "",
            said,
            "",
            "| | |",
            "|---|---|",
            *(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()),
            "",
            *(_scores_section(scores) if scores else []),
            "## Licences",
            "",
            said_of_it,
            "",
            "| model | licence |",
            "|---|---|",
            *licences,
            "",
            *(["## Files that it was made from", "", *hashes, ""] if hashes else []),
        ]
    )


def _scores_section(scores: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(_cell, line))} |" for line in scores]
    lines.insert(1, "|---" * len(scores[0]) + "|")
    said = (
        "Measured by fusionlab on test examples, with 95 % intervals over those; matching and merging did not see them."
    )
    return ["## Scores", "", said, "", *lines, ""]


def _index_lines(index: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the head of a card with its scores; the tasks that they are of, where it is one, as its own."""
    if not index:
        return []
    import yaml  # noqa: PLC0415 - most cards are written without scores

    tasks = {result["task"]["type"] for entry in index for result in entry["results"]}
    told = {"pipeline_tag": next(iter(tasks))} if len(tasks) == 1 else {}
    text: str = yaml.safe_dump(
        {**told, "model-index": [dict(entry) for entry in index]}, sort_keys=False, allow_unicode=True
    )
    return text.splitlines()


def _agreed(licences: Sequence[str | None]) -> str | None:
    """The one licence that all models have; None where they differ, or it is no name of one."""
    first = licences[0]
    plain = first is not None and _PLAIN.fullmatch(first) and first not in ("other", "unknown")
    return first if plain and all(licence == first for licence in licences) else None


def _licence_of(location: Path) -> str | None:
    """The licence in the head of a folder's card; found by its line, so that nothing in it is interpreted."""
    text = _head(location)
    if not text.startswith("---\n") or (end := text.find("\n---", 4)) < 0:
        return None
    found = _LICENCE.search(text[:end])
    if found is None:
        return None
    words = [part.strip(" \t-[]'\"") for part in re.split(r"[\n,]", found.group(1))]
    return ", ".join(word for word in words if word)[:200] or None


def _head(location: Path) -> str:
    """The beginning of a folder's card; empty where there is none that can be read."""
    path = location / CARD
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except OSError:
        return ""


def _listing(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _code(name: str) -> str:
    return f"`{_cell(name).replace('`', '')}`"


def _cell(text: str) -> str:
    """Text that fits a cell of a table: one line, no bars."""
    return re.sub(r"\s+", " ", text).replace("|", "/").strip()
