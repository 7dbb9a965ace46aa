"""Names and roles of the factors of one space's coordinates."""

from __future__ import annotations

from collections.abc import Collection

from fusionlab.symmetry.infer.found import Action, Found
from fusionlab.symmetry.infer.names import common_words, path_in_layer
from fusionlab.symmetry.roles import Role

# Of coordinates that are no hidden units.
_ROLES = {Role.QUERY_KEY: Role.QUERY_KEY_SCALE, Role.RESIDUAL: Role.RESIDUAL_SCALE}


def named_factors(
    one: Found, name: str, role: Role, layer: int | None, gains: Collection[str]
) -> list[tuple[str, Role, Action]]:
    """A name and a role for each of a space's factors; of several, the name says the gain that takes it up.

    Args:
        one: the space.
        name: its name.
        role: its kind.
        layer: the layer that its name says, or None.
        gains: names of parameters.
    """
    own = [_words(_first(one, action, gains), layer) for action in one.factors]
    if len(own) > 1:
        same = len(common_words(own))
        # A number says nothing without its list's name.
        same -= any(words[same : same + 1] and words[same].isdigit() for words in own)
        own = [words[same:] for words in own]
    else:
        own = [[] for _ in own]
    found: list[tuple[str, Role, Action]] = []
    for words, action in zip(own, one.factors, strict=True):
        full = ".".join([name, *words, "scale"])
        count = sum(1 for other, _, _ in found if other == full or other.startswith(f"{full}:"))
        found.append((f"{full}:{count + 1}" if count else full, _ROLES.get(role, Role.UNIT_SCALE), action))
    return found


def _first(one: Found, action: Action, gains: Collection[str]) -> str:
    """The first gain that a factor acts on, or the first parameter if there is none."""
    names = [stretch[0] for stretch in one.stretches if action.powers.get(stretch)]
    return next((name for name in names if name in gains), names[0])


def _words(parameter: str, layer: int | None) -> list[str]:
    """The modules that a parameter lies in, and its own name if that says anything."""
    # Layers of what belongs to none are in the names of modules.
    path = parameter.split(".")[:-1] if layer is None else path_in_layer(parameter)
    own = parameter.rpartition(".")[2]
    return path if own in ("weight", "bias") else [*path, own]
