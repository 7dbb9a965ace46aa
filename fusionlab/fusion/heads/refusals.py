"""Merge methods that models with several heads rule out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionlab.errors import InputError


def refuse_scoring(needs: Mapping[str, Sequence[str]], heads: str) -> None:
    """Refuse methods that score merges: labels of the data they choose by are not places among a merge's own.

    Args:
        needs: of each method, by name.
        heads: the option's value, for the sentence.

    Raises:
        InputError: such a method.
    """
    for method, needed in needs.items():
        if "score" in needed:
            raise InputError(
                f"method {method!r} chooses by scores, for which all models need one head with the labels of the data, "
                f"but heads is {heads!r}; expected heads to be merged, or another method"
            )
