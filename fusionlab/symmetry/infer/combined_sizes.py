"""Sizes that several fields of a config give together, such as the width of a head or the coordinates that turn."""

from __future__ import annotations

import re
from typing import Any

from fusionlab.symmetry.infer.meanings import Meaning, meaning

Fields = dict[str, Any]
# Heads that divide no width but their own.
APART = re.compile(r"linear_|index_|mamba_|ssm_")
MAIN_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim")


def combined_sizes(node: Fields) -> dict[str, int]:
    """Sizes that several fields of a config give together, by what they are."""
    found: dict[str, int] = {}
    main = next((node[name] for name in MAIN_WIDTHS if is_size(node.get(name))), None)
    counts = [v for name, v in node.items() if meaning(name) == Meaning.HEADS and is_size(v)]
    groups = [v for name, v in node.items() if meaning(name) == Meaning.KEY_VALUE_HEADS and is_size(v)]
    width = next((node[name] for name in ("head_dim", "d_kv", "kv_channels") if is_size(node.get(name))), None)
    if width is None and main and counts:
        width = main // counts[0]
    if width is not None:
        found["width of a head"] = width
        if (turned := int(width * partial_of(node))) < width:
            found |= {"rotary coordinates": turned, "rotary-free coordinates": width - turned}
    if counts and groups:
        found["heads sharing a key"] = counts[0] // groups[0]
    for name, value in node.items():
        if name.endswith("_groups") and is_size(value) and value > 1 and counts and counts[0] % value == 0:
            found[f"heads in each of {name}"] = counts[0] // value
    image: Any = node.get("image_size")
    patch: Any = node.get("patch_size")
    if (is_size(image) or is_pair(image)) and (is_size(patch) or is_pair(patch)):
        (height, across), (tall, wide) = pair_of(image), pair_of(patch)
        found["patches"] = height // tall * (across // wide)
    if is_size(node.get("max_source_positions")):
        found["twice max_source_positions"] = 2 * node["max_source_positions"]
    return found


def is_apart(node: Fields, width: int) -> bool:
    """Heads are not as wide together as the model is."""
    inside = node.get("head_dim")
    counts = [v for name, v in node.items() if meaning(name) == Meaning.HEADS and not APART.match(name)]
    return inside is not None and all(is_size(count) and count * inside != width for count in counts)


def small_rope(rope: Fields, planes: int, positions: int) -> Fields:
    """Rotary parameters for a number of planes."""
    small = dict(rope)
    for name, value in rope.items():
        if isinstance(value, dict):
            small[name] = small_rope(value, planes, positions)
        elif name == "original_max_position_embeddings":
            small[name] = max(8, positions // 4)
        elif name == "mrope_section" and is_list_of_sizes(value):
            first = max(1, planes // len(value))
            small[name] = [planes - first * (len(value) - 1), *[first] * (len(value) - 1)]
        elif isinstance(value, (list, tuple)) and name.endswith("_factor"):
            small[name] = value[:planes]
    return small


def partial_of(node: Fields) -> float:
    """The smallest part of a head's coordinates that positions turn."""
    found = [1.0]
    for name, value in node.items():
        if name in ("partial_rotary_factor", "rotary_pct") and isinstance(value, (int, float)) and value > 0:
            found.append(float(value))
        elif name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            found += [partial_of(inner) for inner in (value, *value.values()) if isinstance(inner, dict)]
    main: int = next((node[name] for name in MAIN_WIDTHS if is_size(node.get(name))), 0)
    heads: int = next((value for name, value in node.items() if meaning(name) == Meaning.HEADS and is_size(value)), 0)
    turned: Any = node.get("rotary_dim")
    if is_size(turned) and heads and turned * heads < main:
        found.append(turned * heads / main)
    return min(found)


def turns(width: int, factor: float) -> bool:
    """Positions can turn this part of so many coordinates: whole planes, two of them at least."""
    turned = int(width * factor)
    return turned % 2 == 0 and (turned >= 4 or width < 4) and (factor == 1 or width - turned >= 3)


def is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_list_of_sizes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def is_pair(value: Any) -> bool:
    return is_list_of_sizes(value) and len(value) == 2


def pair_of(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if is_list_of_sizes(value) else (value, value)
