"""Models of transformers whose tensors are stored in several types: each parameter in its own, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

from fusionlab.checkpoints.conversions import placed_groups
from fusionlab.checkpoints.weights import StoredNumbers
from fusionlab.dtypes import widest


@torch.no_grad()
def restore_types(model: PreTrainedModel, stored: Mapping[str, StoredNumbers], loaded: torch.dtype) -> None:
    """Give each parameter the type that it is stored in, and its numbers as they are stored, in place.

    transformers loads a model in one type, which rounds what is stored in a wider one. What it keeps in float32 by
    itself (`_keep_in_fp32_modules`) stays in it; a parameter that is made of several tensors is in their widest type.

    Args:
        model: as transformers loaded it.
        stored: tensors of floating-point numbers, by the names in the files.
        loaded: type that it was loaded in.
    """
    state = model.state_dict(keep_vars=True)
    types = {one.dtype for one in stored.values()}
    if types <= {loaded}:
        return
    tied = getattr(model, "all_tied_weights_keys", {})
    known = {name: one.shape for name, one in stored.items()}
    done: set[int] = set()
    # Of parameters that are one the name that transformers ties the others to has the numbers.
    for group in sorted(placed_groups(model, known), key=lambda group: group.made[0] in tied):
        own = widest(stored[name].dtype for name in group.stored)
        made = {name: state[name] for name in group.made if _is_new(state[name], done)}
        done |= {id(tensor) for tensor in made.values()}
        types_now = {tensor.dtype for tensor in made.values()}
        if types_now <= {own}:
            continue
        if all(torch.promote_types(dtype, own) == dtype for dtype in types_now):
            # In a wider type nothing was rounded. Another than all is loaded in is what transformers keeps.
            for tensor in made.values():
                tensor.data = tensor.data.to(own if tensor.dtype == loaded else tensor.dtype)
            continue
        read = group.read({name: stored[name].read() for name in group.stored})
        for name, tensor in made.items():
            tensor.data = read[name].to(own, copy=True).contiguous()


def _is_new(tensor: torch.Tensor, done: set[int]) -> bool:
    return tensor.is_floating_point() and id(tensor) not in done
