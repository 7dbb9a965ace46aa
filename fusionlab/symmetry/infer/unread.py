"""Parameters that guessed inputs do not reach, and whether it is safe to leave them as they are."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from fusionlab.symmetry.infer.trace import Traced

# Where inputs may be missing that could not be guessed, so much may be unread, as a token for masks.
MOST_UNREAD = 0.02
# Tables and maps that optional arguments of a forward lead to: kinds of tokens, languages, tokens seen by all.
_OPTIONAL = re.compile(r"token_type|seg_embed|lang_emb|_global")


def may_be_unread(traced: Traced, is_complete: bool, buffers: Container[str] = ()) -> bool:
    """True if what guessed inputs left unread could not write to, or read, a basis that the rest of the model leaves.

    Args:
        traced: from guessed inputs.
        is_complete: nothing else that the forward takes could lead to other parameters.
        buffers: names of what a model writes itself, such as weights that it has rounded; they may always be unread.

    Returns:
        False where a matrix is unread that other inputs would have reached: any if some may be missing, else those of
        optional arguments, and of modules in lists whose like was read, as experts that no token chose.
    """
    names = [name for name in traced.unread if name not in buffers]
    matrices = [n for n in names if traced.state[n].numel() > max(traced.state[n].shape, default=1)]
    if is_complete:
        return not any(map(_OPTIONAL.search, matrices)) and not like_what_is_read(matrices, traced)
    unread = sum(traced.state[name].numel() for name in names)
    return not matrices and unread <= MOST_UNREAD * sum(tensor.numel() for tensor in traced.state.values())


def like_what_is_read(names: Iterable[str], traced: Traced) -> list[str]:
    """Those parameters that are of a module in a list of which another was read, as experts that no token chose."""
    unread = set(traced.unread)
    read = {_pattern(name) for name in traced.state if name not in unread}
    return [name for name in names if _pattern(name) in read]


def _pattern(name: str) -> str:
    """A name without its numbers, the same for all modules of a list."""
    return re.sub(r"\d+", "*", name)
