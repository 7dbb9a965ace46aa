"""Differences from a base model as adapters: what `extract` makes of a model, and `merge --as lora` of a merge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rich.progress import track
from rich.table import Table
from torch import nn

from fusionlab import printing
from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.checkpoints.adapted import HEADS, base_state, task_of, token_tables
from fusionlab.checkpoints.extraction import Extracted, Layer, extract, write_adapter
from fusionlab.checkpoints.files import is_adapter
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.huggingface import is_transformers
from fusionlab.checkpoints.huggingface_config import load_config
from fusionlab.checkpoints.side_files import copy_of_adapter
from fusionlab.errors import InputError
from fusionlab.misfits import other_sizes
from fusionlab.paths import expanded

# Of each change, where nothing is said.
RANK = 16


def refuse_rank(rank: int) -> None:
    """Refuse a rank that no change has.

    Raises:
        InputError: it is less than 1.
    """
    if rank < 1:
        raise InputError(f"rank is {rank}; expected at least 1")


def refuse_base(base: str) -> None:
    """Refuse an adapter in place of a base model.

    Args:
        base: path or hub id.

    Raises:
        InputError: it is one.
    """
    if is_adapter(locate(base)):
        raise InputError(f"{base} is an adapter itself; expected the base model that it changes")


def difference(model: nn.Module, name: str, kind: str, base: str, rank: int) -> Extracted:
    """The difference of a model from its base model, each layer's best change of a rank.

    Args:
        model: the model.
        name: of it, for messages.
        kind: the format of its checkpoint.
        base: path or hub id of the base model.
        rank: of every change.

    Raises:
        InputError: a model of another library, of another size or with other tokens, or one that differs in nothing or
            in no matrix.
    """
    if not is_transformers(model):
        raise InputError(f"{name} is a {kind} checkpoint; expected a transformers folder")
    if sizes := other_sizes([model.config, load_config(locate(base))]):
        raise InputError(
            f"{name} and {base} have different sizes ({sizes}); expected --base, the model that {name} was fine-tuned "
            f"from"
        )
    task = task_of(model)
    before = base_state(model, locate(base))
    for table in sorted(token_tables(model) & before.keys()):
        rows, old = len(model.state_dict()[table]), len(before[table])
        if rows != old:
            raise InputError(
                f"{name} has {rows} rows of {table}, one for each token, and {base} has {old}, which an adapter does "
                f"not change; expected --base, a folder with the base model after resize_token_embeddings({rows})"
            )
    found = extract(model, before, rank, HEADS.get(task or "", ()), _shown)
    if not found.differs:
        raise InputError(f"{name} is {base} itself; expected a model that differs from its base")
    if not found.changes and not found.stacks:
        others = [*found.modules, *found.biases]
        raise InputError(
            f"{name} differs from {base} in no matrix that two factors would change, but in {others[0]}"
            f"{f' and {len(others) - 1} more' if len(others) > 1 else ''}, and PEFT reads no adapter without factors; "
            f"expected the whole model to be kept"
        )
    return found


def captured_words(found: Extracted) -> dict[str, str]:
    """The captured share of every layer, for a card."""
    return {f"captured of {layer}": f"{share:.1%}" for layer, share in found.captured.items()}


def write_difference(
    found: Extracted,
    model: nn.Module,
    base: str,
    output: Path,
    overwrite: bool,
    texts: Mapping[str, str],
    adapter: Path | None = None,
) -> None:
    """Write a difference as PEFT stores adapters.

    Args:
        found: the difference.
        model: that it is of, of transformers.
        base: path or hub id of the base model.
        output: the folder.
        overwrite: whether it may be replaced.
        texts: files to write beside it, by name.
        adapter: the folder of another one, whose tokenizer and other side files are taken.

    Raises:
        InputError: an output that cannot be written.
    """
    assert is_transformers(model)
    factors = [factor for change in found.changes.values() for factor in (change.down, change.up)]
    factors += [factor for stack in found.stacks.values() for factor in (stack.down, stack.up)]
    tensors = [*found.saved.values(), *found.biases.values(), *factors]
    require_space(output, sum(tensor.numel() * tensor.element_size() for tensor in tensors) + MIB)
    with atomic_folder(output, overwrite) as temporary:
        # Nothing expands a path in the file.
        write_adapter(found, temporary, str(place) if (place := expanded(base)).exists() else base, task_of(model))
        if adapter is not None:
            copy_of_adapter(adapter, temporary, texts)
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")


def tell_difference(found: Extracted, output: Path, notes: Sequence[str] = ()) -> None:
    """Print the captured shares, and what was saved whole.

    Args:
        found: the difference.
        output: that was written.
        notes: sentences to print below.
    """
    console = printing.results()
    console.print(_table(found.captured))
    if found.modules:
        console.print(f"Saved whole: {', '.join(found.modules)}", style="dim", highlight=False, soft_wrap=True)
    for note in notes:
        console.print(note, style="dim", highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)


def _shown(layers: Sequence[Layer]) -> Iterable[Layer]:
    """The layers, with a bar."""
    return track(layers, "decomposing", transient=not printing.is_verbose(), console=printing.progress())


def _table(captured: Mapping[str, float]) -> Table:
    """The share that is captured, by kind of layer."""
    kinds: dict[str, list[float]] = {}
    for layer, share in captured.items():
        kinds.setdefault(re.sub(r"\d+", "*", layer), []).append(share)
    table = Table("layers", "count", "captured, mean", "least", title="Share of the difference's norm that is captured")
    for kind, shares in kinds.items():
        table.add_row(kind, str(len(shares)), f"{fmean(shares):.1%}", f"{min(shares):.1%}")
    return table
