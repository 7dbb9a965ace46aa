"""A note on classifiers whose labels have other names, from their configs alone."""

from __future__ import annotations

from collections.abc import Sequence

from fusionlab.checkpoints.settings import config_of
from fusionlab.commands.console import tell
from fusionlab.misfits import label_names, some, unnamed


def tell_other_labels(sources: Sequence[str], names: Sequence[str] | None = None) -> None:
    """Tell on standard error which models have as many labels as the first, under other names.

    Labels in another order are refused elsewhere; models without names of labels are passed over.

    Args:
        sources: paths or hub ids of the models; what is no folder with a config is passed over.
        names: to call them by; the sources themselves if None.
    """
    found = {name: _labels(source) for name, source in zip(names or sources, sources, strict=False)}
    known = {name: labels for name, labels in found.items() if labels}
    first = next(iter(known), None)
    for name, labels in known.items():
        wanted = known[first] if first is not None else labels
        if len(labels) == len(wanted) and sorted(labels) != sorted(wanted):
            tell(
                f"The labels of {name} ({some(labels)}) and {first} ({some(wanted)}) have other names: rows of "
                f"heads are taken for one another by their places; fuse --heads own keeps each head, and --heads union "
                f"joins them by label."
            )


def _labels(source: str) -> list[str]:
    """The names of a model's labels; nothing where they are numbers, or where there is no config to look at."""
    labels = label_names(config_of(source))
    return [] if unnamed(labels) else labels
