"""A note on models of one type whose configs say that they compute differently, such as with another activation."""

from __future__ import annotations

from collections.abc import Sequence

from fusionlab.checkpoints.settings import OF_USE, config_of, differing, differing_as_read
from fusionlab.commands.console import tell
from fusionlab.misfits import some

# Characters of two values.
_SHOWN = 60
# Another class, or another size, is refused or told of elsewhere.
_PASSED_OVER = rf"{OF_USE}|architectures|num_\w+|n_\w+|d_\w+|\w*(_size|_sizes|_dim|_layers|_heads|_channels)|depths?"


def tell_other_settings(sources: Sequence[str], names: Sequence[str] | None = None, is_merged: bool = True) -> None:
    """Tell on standard error which models compute otherwise than the first by their configs.

    Sizes that differ are refused, or grown, elsewhere; models of other types are passed over.

    Args:
        sources: paths or hub ids of the models; what is no folder with a config of transformers is passed over.
        names: to call them by; the sources themselves if None.
        is_merged: the models become one, which is written like the first; else each keeps what it has.
    """
    found = {name: config_of(source) for name, source in zip(names or sources, sources, strict=False)}
    configs = {name: config for name, config in found.items() if "model_type" in config}
    first = next(iter(configs), None)
    for name, config in configs.items():
        wanted = configs[first] if first is not None else config
        is_same = config["model_type"] == wanted["model_type"]
        if not is_same or not any(differing(wanted, config, _PASSED_OVER)):
            continue
        entries = differing_as_read(wanted, config, _PASSED_OVER, name) or []
        if words := [_words(*entry) for entry in entries if not _of_size(*entry[1:])]:
            merge = "the merge computes as one of them, as its config.json says"
            kept = merge if is_merged else "each twin keeps its own"
            tell(f"The configs of {name} and {first} differ in {some(words)}; {kept}.")


def _of_size(one: object, other: object) -> bool:
    """True for two lists of different lengths, such as one entry for each layer."""
    return isinstance(one, list) and isinstance(other, list) and len(one) != len(other)


def _words(entry: str, one: object, other: object) -> str:
    """An entry with both values, those of the named models in their order, where they are short."""
    values = f"{other!r}, {one!r}"
    return f"{entry} ({values})" if len(values) <= _SHOWN else entry
