"""Likeness of the layers of two models, by their activations on the same inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fusionlab.errors import InputError
from fusionlab.forward import forward
from fusionlab.growing.layers import layer_stacks
from fusionlab.inputs import Batches
from fusionlab.modes import in_eval_mode
from fusionlab.spreading import spread
from fusionlab.types import Batch

# Tokens or patches to compare by, and batches at most.
_ROWS, _BATCHES = 2048, 64


@torch.no_grad()
def unlikeness(small: nn.Module, large: nn.Module, data: Batches, besides: Collection[str] = ()) -> dict[str, Tensor]:
    """One less linear CKA between the outputs of any two layers of two models, for every stack that both have.

    Args:
        small: the small model.
        large: the larger one.
        data: batches of inputs.
        besides: paths of lists that hold no layers.

    Returns:
        By the path of a stack, shape ``(layers, larger layers)``, from 0 for layers whose outputs differ by a rotation
        and a factor to 1; only stacks of different lengths whose layers return hidden states.

    Raises:
        InputError: no inputs.
    """
    lengths, theirs = layer_stacks(small, besides), layer_stacks(large)
    paths = [path for path, length in lengths.items() if path in theirs and theirs[path] != length]
    batches = spread(data, _BATCHES)
    if not batches:
        raise InputError("data holds no batch; expected at least one")
    ours, others = (_outputs(model, paths, batches) for model in (small, large))
    found = {}
    for path in paths:
        if ours[path] and others[path] and all(len(one) == len(ours[path][0]) for one in (*ours[path], *others[path])):
            found[path] = torch.tensor([[1 - cka(one, other) for other in others[path]] for one in ours[path]])
    return found


def cka(one: Tensor, other: Tensor) -> float:
    """Linear centred kernel alignment of two sets of activations, from 0 to 1.

    ``|Y^T X|^2 / (|X^T X| |Y^T Y|)`` of centred columns (Kornblith et al., 2019, equation 5 and section 4): it does not
    change when either is rotated or scaled.

    Args:
        one: shape ``(rows, features)``.
        other: shape ``(rows, other features)``, of the same inputs.
    """
    x, y = ((t - t.mean(0)).double() for t in (one, other))
    spread = float((x.T @ x).norm() * (y.T @ y).norm())
    return float((y.T @ x).square().sum()) / spread if spread > 0 else 0.0


def _outputs(model: nn.Module, paths: Iterable[str], batches: Iterable[Batch]) -> dict[str, list[Tensor]]:
    """Outputs of the layers of some stacks, by stack: for each layer a row for each token."""
    kept: dict[str, list[list[Tensor]]] = {}
    handles: list[RemovableHandle] = []
    try:
        for path in paths:
            layers = list(model.get_submodule(path).children())
            kept[path] = [[] for _ in layers]
            for layer, rows in zip(layers, kept[path], strict=True):

                def keep(_: nn.Module, __: object, output: object, rows: list[Tensor] = rows) -> None:
                    hidden = output[0] if isinstance(output, tuple) else output
                    if isinstance(hidden, Tensor) and hidden.is_floating_point() and hidden.ndim > 1:
                        rows.append(hidden.detach().flatten(0, -2).float().cpu())

                handles.append(layer.register_forward_hook(keep))
        with in_eval_mode(model):
            for batch in batches:
                forward(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return {path: [torch.cat(rows)[:_ROWS] for rows in layers if rows] for path, layers in kept.items()}
