"""Small sizes for the fields of a config: distinct, and related to each other as the real ones are.

What stays related: a width to the heads that divide it, grouped queries, widths that are equal, an image to its
patches and windows, experts to the groups they are chosen from, rotary coordinates to the factor that says how many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionlab.symmetry.infer.meanings import Meaning, meaning

Path = tuple[str, ...]
Fields = dict[str, Any]
# Labels that a classifier with more than two gets: two are start and end of an answer.
LABELS = 7
_WINDOW, _PATCH, _PATCHES = 4, 4, 3
# Heads that divide no width but their own.
_APART = re.compile(r"linear_|index_|mamba_|ssm_")
_MAIN_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
_OF_HEADS = re.compile(r"(num_|n_)?(attention_|key_value_|kv_|key_|value_)*(heads?|head_kv|query_groups?(_num)?)$")
# Heads of stages: each divides what the width of the first becomes when it is doubled from stage to stage.
_STAGE_WIDTH = 12
_STAGE_HEADS = (4, 6, 8, 12, 16, 24, 32)


def nodes(fields: Fields, at: Path = ()) -> Iterator[tuple[Path, Fields]]:
    """A config's fields, then those of its sub-configs, with the path to each."""
    yield at, fields
    for name, value in fields.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from nodes(value, (*at, name))


@dataclass
class SmallSizes:
    """Chooses sizes for a config that is given as nested fields.

    Attributes:
        fields: of the real config.
        chosen: by path of a field, its small value: what `choose` returns.
        used: sizes that are taken.
    """

    fields: Fields
    chosen: dict[Path, Any] = field(default_factory=dict)
    used: set[int] = field(default_factory=lambda: {1, 2, 3})
    _widths: dict[int, int] = field(default_factory=dict)

    def choose(self) -> dict[Path, Any]:
        """A small value for every field that is a size, but for numbers of layers."""
        every = list(nodes(self.fields))
        for at, node in every:
            self._choose_heads(at, node)
        self._choose_widths(every)
        for at, node in every:
            self._choose_free(at, node)
            self._choose_experts(at, node)
            self._choose_images(at, node)
        for at, node in every:
            self._choose_tokens(at, node)
            self._choose_rotary(at, node)
        return self.chosen

    def take(self, start: int, step: int = 1) -> int:
        """The smallest multiple of `step` from `start` on that is not taken; it then is."""
        size = -(-start // step) * step
        while size in self.used:
            size += step
        self.used.add(size)
        return size

    def _of(self, node: Fields, *meanings: Meaning) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            if meaning(name) in meanings and (_is_size(value) or (value and _is_list(value))):
                yield name, value

    def _choose_heads(self, at: Path, node: Fields) -> None:
        """Numbers of heads, those of keys and values related to those of queries as in the real model."""
        counts = {name: value for name, value in self._of(node, Meaning.HEADS) if value != 1}
        shared = dict(self._of(node, Meaning.KEY_VALUE_HEADS))
        keys: dict[str, int] = {}
        for name, value in counts.items():
            if _is_list(value):
                self.chosen[*at, name] = [1 if n == 1 else _STAGE_HEADS[i] for i, n in enumerate(value)]
                continue
            prefix = _OF_HEADS.sub("", name)
            if prefix in keys:
                # Heads of keys beside heads of values, a multiple of them.
                other = self.chosen[*at, self._first(counts, prefix)]
                self.chosen[*at, name] = other if value == keys[prefix] else 2 * other
                continue
            keys[prefix] = value
            grouped = [n for n in shared if _OF_HEADS.sub("", n) == prefix]
            between = [n for n in grouped if 1 < shared[n] < value]
            if between:
                groups = self.take(4)
                self.chosen[*at, name] = 3 * groups
                self.used.add(3 * groups)
            else:
                self.chosen[*at, name] = groups = self.take(4 if self._heads() else 5)
            for key in grouped:
                self.chosen[*at, key] = 1 if shared[key] == 1 else groups

    def _heads(self) -> list[int]:
        return [value for path, value in self.chosen.items() if meaning(path[-1]) == Meaning.HEADS]

    @staticmethod
    def _first(counts: Mapping[str, Any], prefix: str) -> str:
        return next(name for name in counts if _OF_HEADS.sub("", name) == prefix)

    def _choose_widths(self, every: list[tuple[Path, Fields]]) -> None:
        """Widths, equal ones equal, so that all heads divide them; then the widths of heads."""
        divisors: dict[int, set[int]] = {}
        partial: dict[int, float] = {}
        staged: set[int] = set()
        main = {node[name] for _, node in every for name in _MAIN_WIDTHS if _is_size(node.get(name))}
        for at, node in every:
            for name, value in self._of(node, Meaning.WIDTH):
                counts = {n: v for n, v in self._of(node, Meaning.HEADS) if not _APART.match(n)}
                heads = [self.chosen.get((*at, n), v) for n, v in counts.items()]
                for stage, width in enumerate(value if _is_list(value) else [value]):
                    dividing = divisors.setdefault(width, set())
                    if name in _MAIN_WIDTHS or _is_list(value):
                        for count in heads:
                            if not _is_list(count):
                                dividing.add(count)
                            elif _is_list(value):
                                dividing.add(count[min(stage, len(count) - 1)])
                            else:
                                # It doubles from stage to stage, and what it becomes is divided by their heads.
                                staged.add(width)
                                dividing.add(_STAGE_WIDTH)
                        dividing.update(4 for _ in self._of(node, Meaning.CHANNEL_GROUPS))
                        partial[width] = min(partial.get(width, 1.0), _partial(node))
        for width, dividing in divisors.items():
            step = math.lcm(4, *dividing) if len(dividing) < 2 else math.lcm(*dividing)
            inside = max(dividing, default=1)
            least = 40 if width in main and inside == 1 else max(16, (2 if width in staged else 6) * inside)
            size = self.take(least, step)
            while inside > 1 and not _turns(size // inside, partial.get(width, 1.0)):
                size = self.take(size + step, step)
            self._widths[width] = size
        for at, node in every:
            for name, value in self._of(node, Meaning.WIDTH):
                small = [self._widths[v] for v in value] if _is_list(value) else self._widths[value]
                self.chosen[*at, name] = small
            self._choose_head_widths(at, node)

    def _choose_head_widths(self, at: Path, node: Fields) -> None:
        """Widths of heads: the model's over its heads where they are that in the real config, free otherwise."""
        heads = {name: value for name, value in self._of(node, Meaning.HEADS) if not _is_list(value) and value != 1}
        for name, value in self._of(node, Meaning.HEAD_WIDTH):
            main = next((w for w in _MAIN_WIDTHS if _is_size(node.get(w))), None)
            beside = {head: n for head, n in heads.items() if not (_APART.match(name) or _APART.match(head))}
            ratios = {head: node[main] / (count * value) for head, count in beside.items() if main}
            kept = [head for head, ratio in ratios.items() if ratio == 1 or (ratio == 0.5 and "expand" in node)]
            if kept and main:
                size = round(self.chosen[*at, main] / (self.chosen[*at, kept[0]] * ratios[kept[0]]))
            else:
                size = self.take(6, 2)
                while not _turns(size, _partial(node)):
                    size = self.take(size + 2, 2)
            self.chosen[*at, name] = size
        # Queries and keys whose turned coordinates have a width of their own are as wide as both parts.
        parts = [self.chosen.get((*at, name)) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
        self.used.add(sum(part for part in parts if part))

    def _choose_free(self, at: Path, node: Fields) -> None:
        """What nothing else depends on."""
        starts = {
            Meaning.RANK: (10, 2),
            Meaning.INNER: (14, 2),
            Meaning.VOCABULARY: (83, 2),
            Meaning.POSITIONS: (32, 2),
        }
        for which, (start, step) in starts.items():
            for name, value in self._of(node, which):
                if _is_size(value) and value > 2:
                    self.chosen[*at, name] = self.take(start + (which == Meaning.VOCABULARY), step) if step else start
        for name, value in self._of(node, Meaning.WINDOW):
            if _is_size(value) and value > 1:
                self.chosen[*at, name] = 2 if "depths" in node else min(value, _WINDOW)
        for name, value in self._of(node, Meaning.CHANNEL_GROUPS):
            if _is_size(value) and value > 1:
                self.chosen[*at, name] = 4
        labels = node.get("id2label")
        if isinstance(labels, dict) and len(labels) > 2:
            self.chosen[*at, "num_labels"] = LABELS

    def _choose_experts(self, at: Path, node: Fields) -> None:
        """Experts, more than are chosen; groups of them, more than are chosen."""
        experts = dict(self._of(node, Meaning.EXPERTS))
        if not experts or max(experts.values()) < 2:
            return
        groups = max((value for _, value in self._of(node, Meaning.GROUPS)), default=1)
        total = self.take(12, 3) if groups > 1 else self.take(7)
        for name, value in experts.items():
            self.chosen[*at, name] = total if value > 1 else value
        for name, value in self._of(node, Meaning.GROUPS):
            self.chosen[*at, name] = min(value, 3)
        for which in (Meaning.CHOSEN, Meaning.CHOSEN_GROUPS):
            for name, value in self._of(node, which):
                self.chosen[*at, name] = min(value, 2)

    def _choose_images(self, at: Path, node: Fields) -> None:
        """An image of few patches; as many windows as the real one has where stages halve it."""
        image: Any = node.get("image_size")
        patch: Any = node.get("patch_size")
        if not (_is_size(image) or _is_pair(image)):
            return
        old = max(patch) if _is_list(patch) else patch if _is_size(patch) else None
        side = min(old, _PATCH) if old else 1
        if isinstance(node.get("depths"), list):
            window = node.get("window_size")
            halvings = 2 ** (len(node["depths"]) - 1)
            grid = 2 * halvings
            if _is_size(window) and old:
                small = self.chosen.get((*at, "window_size"), window)
                grid = small * max(1, min(max(_pair(image)) // (old * window), 2 * halvings))
            side = side if old else 4
        else:
            grid = _PATCHES
            side = side if old else 16
        if old:
            self.chosen[*at, "patch_size"] = [side] * len(patch) if _is_list(patch) else side
        stride = node.get("encoder_stride")
        if _is_size(stride) and old and stride % old == 0:
            self.chosen[*at, "encoder_stride"] = stride // old * side
        height, width = _pair(image)
        sides = [grid * side, grid * side + (0 if height == width else side)]
        self.chosen[*at, "image_size"] = sides if _is_list(image) else sides[0]

    def _choose_tokens(self, at: Path, node: Fields) -> None:
        """Tokens with a meaning: those beyond the small vocabulary become free ones inside it."""
        sizes = [v for path, v in self.chosen.items() if path[-1] == "vocab_size" and path[:-1] in (at, at[:-1])]
        sizes = sizes or [v for path, v in self.chosen.items() if path[-1] == "vocab_size"]
        if not sizes:
            return
        named = list(self._of(node, Meaning.TOKEN))
        taken = {token for _, value in named for token in (value if _is_list(value) else [value])}
        free = (token for token in range(min(sizes) - 1, 0, -1) if token not in taken)
        moved: dict[int, int] = {}

        def inside(token: int) -> int:
            if token >= min(sizes) and token not in moved:
                moved[token] = next(free)
            return moved.get(token, token)

        for name, value in named:
            small = [inside(token) for token in value] if _is_list(value) else inside(value)
            if small != value:
                self.chosen[*at, name] = small

    def _choose_rotary(self, at: Path, node: Fields) -> None:
        """Coordinates that positions turn, and what is listed for each plane of them."""
        main = next((w for w in _MAIN_WIDTHS if (*at, w) in self.chosen), None)
        heads = next((n for n, v in self._of(node, Meaning.HEADS) if _is_size(v)), None)
        width = next((self.chosen[*at, n] for n in ("qk_rope_head_dim", "head_dim") if (*at, n) in self.chosen), None)
        if width is None and main and heads:
            width = self.chosen[*at, main] // self.chosen.get((*at, heads), 1)
        if width is None:
            return
        for name, value in self._of(node, Meaning.ROTARY):
            real = next((node[w] for w in _MAIN_WIDTHS if _is_size(node.get(w))), 0) // ((heads and node[heads]) or 1)
            self.chosen[*at, name] = width if value == real else max(2, width // 4 * 2)
        turned = int(width * _partial(node)) // 2
        for name in ("rope_parameters", "rope_scaling"):
            if isinstance(node.get(name), dict):
                self.chosen[*at, name] = _rope(
                    node[name], turned, self.chosen.get((*at, "max_position_embeddings"), 32)
                )


def combined_sizes(node: Fields) -> dict[str, int]:
    """Sizes that several fields of a config give together, by what they are."""
    found: dict[str, int] = {}
    main = next((node[name] for name in _MAIN_WIDTHS if _is_size(node.get(name))), None)
    counts = [v for name, v in node.items() if meaning(name) == Meaning.HEADS and _is_size(v)]
    groups = [v for name, v in node.items() if meaning(name) == Meaning.KEY_VALUE_HEADS and _is_size(v)]
    width = next((node[name] for name in ("head_dim", "d_kv", "kv_channels") if _is_size(node.get(name))), None)
    if width is None and main and counts:
        width = main // counts[0]
    if width is not None:
        found["width of a head"] = width
        if (turned := int(width * _partial(node))) < width:
            found |= {"rotary coordinates": turned, "rotary-free coordinates": width - turned}
    if counts and groups:
        found["heads sharing a key"] = counts[0] // groups[0]
    image: Any = node.get("image_size")
    patch: Any = node.get("patch_size")
    if (_is_size(image) or _is_pair(image)) and (_is_size(patch) or _is_pair(patch)):
        (height, across), (tall, wide) = _pair(image), _pair(patch)
        found["patches"] = height // tall * (across // wide)
    if _is_size(node.get("max_source_positions")):
        found["twice max_source_positions"] = 2 * node["max_source_positions"]
    return found


def _rope(rope: Fields, planes: int, positions: int) -> Fields:
    """Rotary parameters for a number of planes."""
    small = dict(rope)
    for name, value in rope.items():
        if isinstance(value, dict):
            small[name] = _rope(value, planes, positions)
        elif name == "original_max_position_embeddings":
            small[name] = max(8, positions // 4)
        elif name == "mrope_section" and _is_list(value):
            first = max(1, planes // len(value))
            small[name] = [planes - first * (len(value) - 1), *[first] * (len(value) - 1)]
        elif isinstance(value, (list, tuple)) and name.endswith("_factor"):
            small[name] = value[:planes]
    return small


def _partial(node: Fields) -> float:
    """The smallest part of a head's coordinates that positions turn."""
    found = [1.0]
    for name, value in node.items():
        if name in ("partial_rotary_factor", "rotary_pct") and isinstance(value, (int, float)) and value > 0:
            found.append(float(value))
        elif name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            found += [_partial(inner) for inner in (value, *value.values()) if isinstance(inner, dict)]
    return min(found)


def _turns(width: int, factor: float) -> bool:
    """Positions can turn this part of so many coordinates: whole planes, two of them at least."""
    turned = int(width * factor)
    return turned % 2 == 0 and (turned >= 4 or width < 4) and (factor == 1 or width - turned >= 3)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def _is_pair(value: Any) -> bool:
    return _is_list(value) and len(value) == 2


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if _is_list(value) else (value, value)
