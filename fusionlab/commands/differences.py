"""Notes on end models that differ beside their parameters: in tokenizers, preprocessors, settings, labels."""

from __future__ import annotations

from collections.abc import Sequence

from fusionlab.commands.other_labels import tell_other_labels
from fusionlab.commands.other_processors import tell_other_processors
from fusionlab.commands.other_settings import tell_other_settings
from fusionlab.commands.other_tokens import tell_other_tokens


def tell_differences(
    sources: Sequence[str],
    names: Sequence[str] | None = None,
    is_merged: bool = True,
    shares_heads: bool = True,
) -> None:
    """Tell on standard error which models differ, from their files alone; before any work.

    Args:
        sources: paths or hub ids of the models.
        names: to call them by; the sources themselves if None.
        is_merged: the models become one, which is written like the first; else each keeps what it has.
        shares_heads: that one has one head, whose rows are taken for one another by their places.
    """
    tell_other_tokens(sources, names)
    tell_other_processors(sources, names, is_merged)
    tell_other_settings(sources, names, is_merged)
    if is_merged and shares_heads:
        tell_other_labels(sources, names)
