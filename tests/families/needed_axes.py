"""No axis of a blueprint may be wrong: to first order, an output notices any stretch that is left out or turned."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.axes import Axis
from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.groups import Invertible
from tests.families.harness import Case, described, named_tensors
from tests.symmetry.models import moving_all
from tests.symmetry.wrong_axes import Sides, wrong_axes

# Between the smallest effect in saturated attention (1e-12 of the largest) and rounding (1e-16).
NOTICED = 1e-14


def check_every_axis_is_needed(case: Case) -> None:
    """The outputs of a twin change along the difference that one wrong stretch of one axis makes to a parameter.

    What may be wrong without a difference is listed: parameters that no output depends on (`Case.unread`), and biases
    of keys where softmax ignores them.
    """
    model, description = described(case)
    alignment = moving_all(description)
    twin = alignment.apply(model)
    gradients = _gradients(twin, description)
    largest = max(float(gradient.norm()) for gradient in gradients.values())
    before, after = model.state_dict(), twin.state_dict()
    unread, checked = [], 0
    for name, axes in description.parameters.items():
        wrong = [found for found in _wrong(axes, description) if name in gradients]
        if wrong and float(gradients[name].norm()) < NOTICED * largest:
            unread.append(name)
            continue
        for spoilt, stretch in wrong:
            corrupt = replace(description, parameters={**description.parameters, name: spoilt})
            difference = Alignment(corrupt, alignment.elements).apply_to(name, before[name]) - after[name]
            effect = float((gradients[name] * difference).sum().abs() / difference.norm())
            assert effect > NOTICED * largest, f"{name} may run along {spoilt} as well: {sorted(stretch)}"
            checked += 1
    assert set(unread) <= set(case.unread)
    assert checked >= len(description.spaces), f"{checked} stretches for {len(description.spaces)} spaces"


def _wrong(axes: tuple[Axis, ...], description: Blueprint) -> Iterator[tuple[tuple[Axis, ...], Sides]]:
    """The axes of one parameter with one stretch wrong, except for those of biases that softmax ignores."""
    for dim, axis in enumerate(axes):
        for wrong, stretch in wrong_axes(axis, description.spaces):
            ignored = len(axes) == 1 and all(dual and _ignores_keys(space, description) for space, dual in stretch)
            if not ignored:
                yield (*axes[:dim], wrong, *axes[dim + 1 :]), stretch


def _ignores_keys(space: str, description: Blueprint) -> bool:
    """Whether adding a constant to all keys of a space changes no attention map."""
    is_plain = type(description.spaces[space].group) is Invertible
    return is_plain and description.spaces[space].role == "attention.qk" and space not in description.seen_key_biases


def _gradients(model: nn.Module, description: Blueprint) -> dict[str, Tensor]:
    """By parameter, the gradient of a random combination of all outputs; zero where none depends on it."""
    draw = torch.Generator().manual_seed(1)
    inputs = {i.name: i.random(2, draw) for i in description.inputs}
    with InFloat64():
        if hasattr(model, "main_input_name"):
            found = model(**inputs, output_hidden_states=True, return_dict=True)
        else:
            found = model(*inputs.values())
    outputs = [tensor for _, tensor in named_tensors("output", found) if tensor.is_floating_point()]
    weights = [torch.randn(tensor.shape, generator=draw, dtype=tensor.dtype) / tensor.norm() for tensor in outputs]
    sum((weight * tensor).sum() for weight, tensor in zip(weights, outputs, strict=True)).backward()
    parameters = model.named_parameters(remove_duplicate=False)
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in parameters}
