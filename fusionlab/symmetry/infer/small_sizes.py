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

from fusionlab.symmetry.infer.combined_sizes import (
    APART,
    MAIN_WIDTHS,
    Fields,
    is_apart,
    is_list_of_sizes,
    is_size,
    pair_of,
    partial_of,
    small_rope,
    turns,
)
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.small_images import small_image

Path = tuple[str, ...]
# Labels that a classifier with more than two gets: two are start and end of an answer.
LABELS = 7
_WINDOW = 4
_CHANNEL_GROUPS = 4
# The side of a square of patches that becomes one feature, where images come as lists of patches.
_MERGED = "spatial_merge_size"
_KEPT = 64
_OF_HEADS = re.compile(r"(num_|n_)?(attention_|key_value_|kv_|key_|value_)*(heads?|head_kv|query_groups?(_num)?)$")
_STATE_HEADS = re.compile(r"mamba_")
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
        multiple: numbers of heads are multiples of it where they are in the real config.
        chosen: by path of a field, its small value: what `choose` returns.
        used: sizes that are taken.
    """

    fields: Fields
    multiple: int = 1
    chosen: dict[Path, Any] = field(default_factory=dict)
    used: set[int] = field(default_factory=lambda: {1, 2, 3})
    _widths: dict[int, int] = field(default_factory=dict)

    def choose(self) -> dict[Path, Any]:
        """A small value for every field that is a size, but for numbers of layers."""
        every = list(nodes(self.fields))
        around = dict(every)
        for _, node in every:
            # What stays as it is must not be taken for a size that changes.
            self.used.update(v for n, v in node.items() if meaning(n) == Meaning.KEPT and is_size(v) and v < _KEPT)
            self.used.update(_CHANNEL_GROUPS for _ in self._of(node, Meaning.CHANNEL_GROUPS))
        for at, node in every:
            self._choose_heads(at, node)
        self._choose_widths(every)
        for at, node in every:
            self._choose_free(at, node)
            self._choose_experts(at, node)
            window = self.chosen.get((*at, "window_size"), node.get("window_size"))
            image = small_image(node, window, around.get(at[:-1], {}).get("scale_factor") if at else None)
            self.chosen.update({(*at, name): value for name, value in image.items()})
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
            if meaning(name) in meanings and (is_size(value) or (value and is_list_of_sizes(value))):
                yield name, value

    def _choose_heads(self, at: Path, node: Fields) -> None:
        """Numbers of heads, those of keys and values related to those of queries as in the real model."""
        counts = {name: value for name, value in self._of(node, Meaning.HEADS) if value != 1}
        shared = dict(self._of(node, Meaning.KEY_VALUE_HEADS))
        keys: dict[str, int] = {}
        for name, value in counts.items():
            if is_list_of_sizes(value):
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
            step = math.lcm(*(n for n in (self.multiple, *self._channel_groups(node)) if value % n == 0))
            if between:
                groups = self.take(4, step)
                # Six for each where more than one number must divide them, as of layers with twice the keys.
                self.chosen[*at, name] = (3 if self.multiple == 1 else 6) * groups
                self.used.add(self.chosen[*at, name])
            else:
                self.chosen[*at, name] = groups = self.take(4 if self._heads() else 5, step)
            for key in grouped:
                self.chosen[*at, key] = 1 if shared[key] == 1 else groups

    @staticmethod
    def _channel_groups(node: Fields) -> list[int]:
        """Groups of convolutions in place of linear maps, which divide the heads."""
        return [value for name, value in node.items() if name.endswith("_groups") and is_size(value) and value > 1]

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
        main = {node[name] for _, node in every for name in MAIN_WIDTHS if is_size(node.get(name))}
        for at, node in every:
            for name, value in self._of(node, Meaning.WIDTH):
                for stage, width in enumerate(value if is_list_of_sizes(value) else [value]):
                    dividing = divisors.setdefault(width, set())
                    if name not in MAIN_WIDTHS and not is_list_of_sizes(value):
                        continue
                    dividing.update(self._dividing(at, node, stage if is_list_of_sizes(value) else None))
                    if any(is_list_of_sizes(heads) for _, heads in self._of(node, Meaning.HEADS)):
                        staged.add(width)
                    if not is_apart(node, width):
                        # Rows and columns of an image turn a half each.
                        turning = 0.5 if _MERGED in node else partial_of(node)
                        partial[width] = min(partial.get(width, 1.0), turning)
        for width, dividing in divisors.items():
            step = math.lcm(4, *dividing) if len(dividing) < 2 else math.lcm(*dividing)
            inside = max(dividing, default=1)
            least = 40 if width in main and inside == 1 else max(16, (2 if width in staged else 6) * inside)
            size = self.take(least, step)
            while inside > 1 and not turns(size // inside, partial.get(width, 1.0)):
                size = self.take(size + step, step)
            self._widths[width] = size
        for at, node in every:
            for name, value in self._of(node, Meaning.WIDTH):
                small = [self._widths[v] for v in value] if is_list_of_sizes(value) else self._widths[value]
                self.chosen[*at, name] = small
            self._choose_head_widths(at, node)
            self._choose_state_heads(at, node)

    def _choose_state_heads(self, at: Path, node: Fields) -> None:
        """Heads of a state-space layer: together as wide as the stream is after it was expanded, as in the real one."""
        main = next((w for w in MAIN_WIDTHS if is_size(node.get(w))), None)
        expand = node.get("mamba_expand")
        if main is None or not is_size(expand):
            return
        for name, _ in self._of(node, Meaning.HEADS):
            if not _STATE_HEADS.match(name):
                continue
            inside = expand * self.chosen[*at, main]
            groups = next((node[g] for g in ("mamba_n_groups", "mamba_num_groups") if is_size(node.get(g))), 1)
            fitting = [n for n in (6, 8, 10, 4, 12, 16, 24, 32, 2) if inside % n == 0 and n % groups == 0]
            count = next((n for n in fitting if n not in self._heads()), fitting[0] if fitting else None)
            if count is None:
                continue
            self.chosen[*at, name] = count
            for width in ("mamba_d_head", "mamba_head_dim"):
                if is_size(node.get(width)):
                    self.chosen[*at, width] = inside // count

    def _dividing(self, at: Path, node: Fields, stage: int | None) -> Iterator[int]:
        """What a width must be divided by: of one stage of several, or of the whole model."""
        for name, value in self._of(node, Meaning.HEADS):
            count = self.chosen.get((*at, name), value)
            if APART.match(name):
                continue
            if not is_list_of_sizes(count):
                yield count
            # The first stage's width doubles from stage to stage, and what it becomes is divided by their heads.
            else:
                yield _STAGE_WIDTH if stage is None else count[min(stage, len(count) - 1)]
        if any(self._of(node, Meaning.CHANNEL_GROUPS)):
            yield _CHANNEL_GROUPS

    def _choose_head_widths(self, at: Path, node: Fields) -> None:
        """Widths of heads: the model's over its heads where they are that in the real config, free otherwise."""
        heads = {
            name: value for name, value in self._of(node, Meaning.HEADS) if not is_list_of_sizes(value) and value != 1
        }
        for name, value in self._of(node, Meaning.HEAD_WIDTH):
            main = next((w for w in MAIN_WIDTHS if is_size(node.get(w))), None)
            beside = {head: n for head, n in heads.items() if not (APART.match(name) or APART.match(head))}
            ratios = {head: node[main] / (count * value) for head, count in beside.items() if main}
            kept = [head for head, ratio in ratios.items() if ratio == 1 or (ratio == 0.5 and "expand" in node)]
            if kept and main:
                size = round(self.chosen[*at, main] / (self.chosen[*at, kept[0]] * ratios[kept[0]]))
            else:
                size = self.take(6, 2)
                while not turns(size, partial_of(node)):
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
                if is_list_of_sizes(value):
                    # One for each layer or stage.
                    small = {size: self.take(start, step) for size in dict.fromkeys(value)}
                    self.chosen[*at, name] = [small[size] for size in value]
                elif value > 2:
                    self.chosen[*at, name] = self.take(start + (which == Meaning.VOCABULARY), step) if step else start
        for name, value in self._of(node, Meaning.WINDOW):
            if is_size(value) and value > 1:
                square = node.get(_MERGED, 0) * max(pair_of(node.get("patch_size", 0)))
                self.chosen[*at, name] = 2 if "depths" in node else min(value, 2 * square or _WINDOW)
        for name, value in self._of(node, Meaning.CHANNEL_GROUPS):
            if is_size(value) and value > 1:
                self.chosen[*at, name] = _CHANNEL_GROUPS
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

    def _choose_tokens(self, at: Path, node: Fields) -> None:
        """Tokens with a meaning: those beyond the small vocabulary become free ones inside it."""
        sizes = [v for path, v in self.chosen.items() if path[-1] == "vocab_size" and path[:-1] in (at, at[:-1])]
        sizes = sizes or [v for path, v in self.chosen.items() if path[-1] == "vocab_size"]
        if not sizes:
            return
        named = list(self._of(node, Meaning.TOKEN))
        taken = {token for _, value in named for token in (value if is_list_of_sizes(value) else [value])}
        free = (token for token in range(min(sizes) - 1, 0, -1) if token not in taken)
        moved: dict[int, int] = {}

        def inside(token: int) -> int:
            if token >= min(sizes) and token not in moved:
                moved[token] = next(free)
            return moved.get(token, token)

        for name, value in named:
            small = [inside(token) for token in value] if is_list_of_sizes(value) else inside(value)
            if small != value:
                self.chosen[*at, name] = small

    def _choose_rotary(self, at: Path, node: Fields) -> None:
        """Coordinates that positions turn, and what is listed for each plane of them."""
        main = next((w for w in MAIN_WIDTHS if (*at, w) in self.chosen), None)
        heads = next((n for n, v in self._of(node, Meaning.HEADS) if is_size(v)), None)
        width = next((self.chosen[*at, n] for n in ("qk_rope_head_dim", "head_dim") if (*at, n) in self.chosen), None)
        if width is None and main and heads:
            width = self.chosen[*at, main] // self.chosen.get((*at, heads), 1)
        if width is None:
            return
        for name, value in self._of(node, Meaning.ROTARY):
            real = next((node[w] for w in MAIN_WIDTHS if is_size(node.get(w))), 0) // ((heads and node[heads]) or 1)
            self.chosen[*at, name] = width if value == real else max(2, int(width * partial_of(node)) // 2 * 2)
        turned = int(width * partial_of(node)) // 2
        for name in ("rope_parameters", "rope_scaling"):
            if isinstance(node.get(name), dict):
                self.chosen[*at, name] = small_rope(
                    node[name], turned, self.chosen.get((*at, "max_position_embeddings"), 32)
                )
