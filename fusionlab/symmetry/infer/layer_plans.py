"""Plans for fewer layers: which numbers and lists of a config to change so that every kind of layer stays."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fusionlab.symmetry.infer.combined_sizes import Fields
from fusionlab.symmetry.infer.kinds import is_increasing, is_list, kinds_of, per_layer
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.small_sizes import Path, nodes

# Of each kind, so that what belongs to one layer is told from what several share.
_OF_A_KIND = 2
_MOST_LAYERS = 16
_INDICES = re.compile(r"(index(es)?|indices|layers|layer_ids|layers_ids)$")
_PATTERNS = re.compile(r"layer|dense|sparse|period|interval|freq|pattern|every|offset")


@dataclass(frozen=True)
class LayerPlan:
    """Changes to a config, by path of a field.

    Attributes:
        thorough: whether two layers are wanted of each kind that the real model has two of.
    """

    changes: dict[Path, Any]
    thorough: bool


def layer_plans(real: nn.Module, config: Any, fields: Fields) -> Iterator[LayerPlan]:
    """Plans to try, the best first: two layers of each kind, then growing numbers; patterns as they are, then shorter.

    Args:
        real: the real model.
        config: its config.
        fields: the same, nested.
    """
    every = list(nodes(fields))
    counts = sorted({count for at, node in every for count in _layer_counts(node)})
    if not counts:
        yield LayerPlan({}, thorough=False)
        return
    kept = {count: _representatives(real, config, count, every) for count in counts}
    yield LayerPlan(_plan(every, kept), thorough=True)
    most = min(max(counts), _MOST_LAYERS)
    for shorter in (False, True):
        for layers in range(2, most + 1):
            first = {count: list(range(min(count, layers))) for count in counts}
            changes = _plan(every, first)
            if shorter:
                changes |= _shorter_patterns(every, max(counts), layers)
            yield LayerPlan(changes, thorough=True)
    yield LayerPlan(_plan(every, kept), thorough=False)
    for layers in (*range(2, most + 1), max(counts)):
        first = {count: list(range(min(count, layers))) for count in counts}
        yield LayerPlan(_plan(every, first), thorough=False)


def _layer_counts(node: Fields) -> Iterator[int]:
    for name, value in node.items():
        for count in value if _is_depths(name, value) else [value] if meaning(name) == Meaning.LAYERS else []:
            if type(count) is int and count > 1:
                yield count


def _is_depths(name: str, value: Any) -> bool:
    """A list of the numbers of layers of stages."""
    return isinstance(value, (list, tuple)) and bool(re.search(r"(depths?|num_layers)$", name))


def _representatives(real: nn.Module, config: Any, count: int, every: list[tuple[Path, Fields]]) -> list[int]:
    """Layers that show every kind there is among lists of `count`, each kind twice where it is."""
    said: list[Sequence[Hashable]] = [*per_layer(config, count).values(), *_listed(every, count)]
    kinds: list[Sequence[Hashable]] = list(said)
    kinds += [
        kinds_of(module, count, said)
        for module in real.modules()
        if any(is_list(child) and len(child._modules) == count for child in module.children())
    ]
    of_kind: dict[Hashable, list[int]] = {}
    for layer in range(count):
        of_kind.setdefault(tuple(column[layer] for column in kinds), []).append(layer)
    return sorted(layer for layers in of_kind.values() for layer in layers[:_OF_A_KIND])


def _listed(every: list[tuple[Path, Fields]], count: int) -> Iterator[list[bool]]:
    """For every list of layers' indices, beside a number of `count` layers, which layers it names."""
    for _, node in every:
        for name, value in node.items():
            if count in _layer_counts(node) and _is_of_indices(name, value) and max(value) < count:
                yield [layer in value for layer in range(count)]


def _is_of_indices(name: str, value: Any) -> bool:
    is_list_of_some = isinstance(value, (list, tuple)) and bool(value)
    return is_list_of_some and bool(_INDICES.search(name)) and is_increasing(value) and not name.startswith("out_")


def _plan(every: list[tuple[Path, Fields]], kept: dict[int, list[int]]) -> dict[Path, Any]:
    """Keep some layers of each count: numbers, lists with an entry for each layer, lists of layers' indices."""
    changes: dict[Path, Any] = {}
    for at, node in every:
        # Beside a list of depths the lists are of stages.
        staged = any(_is_depths(name, value) for name, value in node.items())
        own = set() if staged else set(_layer_counts(node)) or set(kept)
        for name, value in node.items():
            if meaning(name) == Meaning.LAYERS and type(value) is int and value in kept:
                # Layers that share parameters in groups run each group as often as any other.
                changes[*at, name] = max(len(kept[value]), node.get("num_hidden_groups") or 0)
            if (
                own
                and isinstance(value, dict)
                and value
                and all(isinstance(f, dict) and str(k).isdigit() for k, f in value.items())
            ):
                # Fields that some layers have of their own.
                layers = kept[max(own)]
                by_layer = {int(key): fields for key, fields in value.items()}
                changes[*at, name] = {i: by_layer[layer] for i, layer in enumerate(layers) if layer in by_layer}
            if not isinstance(value, (list, tuple)) or not value:
                continue
            if _is_depths(name, value):
                changes[*at, name] = [len(kept[n]) if n in kept else n for n in value]
            elif own and _is_of_indices(name, value):
                layers = kept[max(own)]
                changes[*at, name] = [layers.index(layer) for layer in value if layer in layers]
            elif len(value) in own and len(kept[len(value)]) < len(value):
                changes[*at, name] = [value[layer] for layer in kept[len(value)]]
            elif name == "attention_types" and own:
                # GPT-Neo's lists of kinds, each with how often it is repeated.
                every_type = [kind for kinds, times in value for _ in range(times) for kind in kinds]
                changes[*at, name] = [[[every_type[layer]], 1] for layer in kept[len(every_type)]]
    return changes


def _shorter_patterns(every: list[tuple[Path, Fields]], count: int, layers: int) -> dict[Path, Any]:
    """Numbers that say where in the depth kinds change, drawn into a few layers."""
    return {
        (*at, name): min(value, layers // 2)
        for at, node in every
        for name, value in node.items()
        if type(value) is int and 1 < value <= count and meaning(name) == Meaning.KEPT and _PATTERNS.search(name)
    }


def merged(fields: Fields, sizes: Mapping[Path, Any], kept: Mapping[Path, Any]) -> dict[Path, Any]:
    """Small sizes and fewer layers together; of a list of sizes with one for each layer, those of the kept layers.

    Args:
        fields: of the real config, nested.
        sizes: by path of a field, its small value.
        kept: of a plan.
    """
    changes = {**sizes, **kept}
    layer = fields.get("vision_feature_layer")
    if type(layer) is int and layer < 0:
        # Of few layers the last is what is looked at, so that none of them stands for layers and is not read itself.
        changes["vision_feature_layer",] = -1
    for at, node in nodes(fields):
        for name, value in node.items():
            path = (*at, name)
            if path in sizes and path in kept and isinstance(value, (list, tuple)) and len(value) == len(sizes[path]):
                small = dict(zip(value, sizes[path], strict=True))
                changes[path] = [small[size] for size in kept[path]]
            elif path in kept and isinstance(value, dict):
                changes[path] = {i: _in_proportion(own, node, at, sizes) for i, own in kept[path].items()}
    return changes


def _in_proportion(own: Fields, node: Fields, at: Path, sizes: Mapping[Path, Any]) -> Fields:
    """Fields that a layer has of its own, as many times as large as the model's as they are in the real one."""
    small = dict(own)
    for name, value in own.items():
        if type(value) is int and type(node.get(name)) is int and (*at, name) in sizes:
            small[name] = max(1, value * sizes[*at, name] // node[name])
    return small
