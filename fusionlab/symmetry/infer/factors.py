"""Names and roles of the factors of one space's coordinates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusionlab.symmetry.infer.found import Action, Found
from fusionlab.symmetry.infer.names import common_words, layer_of, path_in_layer
from fusionlab.symmetry.roles import Role

# Of coordinates that are no hidden units.
_ROLES = {Role.QUERY_KEY: Role.QUERY_KEY_SCALE, Role.RESIDUAL: Role.RESIDUAL_SCALE}


@dataclass(frozen=True)
class Factor:
    """A set of factors with the name, the role and the layer of the space that it is."""

    name: str
    role: Role
    layer: int | None
    action: Action


def named_factors(one: Found, name: str, role: Role, layer: int | None, gains: Collection[str]) -> list[Factor]:
    """Each of a space's factors; of several, the name says the gain that takes it up.

    Args:
        one: the space.
        name: its name.
        role: its kind.
        layer: the layer that it belongs to, or None; then each of several factors may belong to one.
        gains: names of parameters.
    """
    role = _ROLES.get(role, Role.UNIT_SCALE)
    if len(one.factors) == 1:
        return [Factor(f"{name}.scale", role, layer, one.factors[0])]
    places = [_place(one, action, gains, layer) for action in one.factors]
    same = len(common_words([place.around for place in places]))
    found: list[Factor] = []
    for place, action in zip(places, one.factors, strict=True):
        full = ".".join([name, *place.around[same:], *place.inside, "scale"])
        count = sum(1 for other in found if other.name == full or other.name.startswith(f"{full}:"))
        found.append(Factor(f"{full}:{count + 1}" if count else full, role, place.layer, action))
    return found


@dataclass(frozen=True)
class _Place:
    """The modules around the layer that a factor lies in, or around its gain; what follows; and the layer's number."""

    around: tuple[str, ...]
    inside: tuple[str, ...]
    layer: int | None


def _place(one: Found, action: Action, gains: Collection[str], layer: int | None) -> _Place:
    names = [stretch[0] for stretch in one.stretches if action.powers.get(stretch)]
    gain = next((name for name in names if name in gains), names[0])
    own = gain.rpartition(".")[2]
    inside = (*path_in_layer(gain), *(() if own in ("weight", "bias") else (own,)))
    if layer is not None:
        return _Place((), inside, layer)
    found = layer_of(gain)
    if found is None:
        return _Place(inside[:-1], inside[-1:], None)
    around = tuple(found[0].split(".")[:-2])
    if any(layer_of(name) != found for name in names):
        return _Place(around, inside, None)  # a stretch beyond the layer reads it: the last norm of a stack
    return _Place(around, ("layers", str(found[1]), *inside), found[1])
