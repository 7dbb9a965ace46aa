"""Other whole numbers and masks in place of those that an example has for every input alike.

A mask of ones or ids that are all the same hide what the model would do with others, and what hides it looks like a
symmetry: units behind a mask of ones may change places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.trace import Plain, in_float64
from fusionlab.symmetry.inputs import Input


@dataclass(frozen=True)
class Varied:
    """An example in which what was the same for every input differs, where the model takes that.

    Attributes:
        batch: by the names of the forward's arguments.
        drawn: what may be drawn in place of the inputs that were changed, by name.
        held: names of those that the model takes as they are alone.
    """

    batch: dict[str, Tensor]
    drawn: dict[str, Input]
    held: tuple[str, ...]

    def notes(self) -> tuple[str, ...]:
        """A sentence for each input that could not be changed."""
        return tuple(
            f"the model takes no other numbers for the input {name!r}, which is the same for every example: what was "
            f"found is shown with these alone"
            for name in self.held
        )


def is_same_for_all(x: Tensor) -> bool:
    """Whole numbers or truth values that are the same for every example, or everywhere."""
    if x.is_floating_point() or x.is_complex() or x.ndim == 0 or x.numel() < 2:
        return False
    return bool((x == x.flatten()[0]).all()) or (len(x) > 1 and bool((x == x[:1]).all()))


def draws(name: str, x: Tensor) -> list[Input]:
    """Draws in an input's place, first come first: of numbers up to the largest, and one more if all agree."""
    shape = tuple(x.shape[1:])
    if x.dtype == torch.bool:
        return [Input(name, shape, is_mask=True)]
    least, most = int(x.min()), int(x.max())
    if least < 0:
        return []
    if least < most:
        return [Input(name, shape, vocabulary=most + 1)]
    mask = [Input(name, shape, vocabulary=2, is_mask=True)] if most == 1 else []
    return [*mask, *(Input(name, shape, vocabulary=count) for count in dict.fromkeys((max(2, most + 1), most + 2)))]


def drawn_like(x: Tensor, one: Input, generator: torch.Generator) -> Tensor:
    """A random batch in the place of another."""
    return one.random(len(x), generator).to(x.dtype)


def redrawn(
    inputs: Mapping[str, Tensor], generator: torch.Generator, is_taken: Callable[[Mapping[str, Tensor]], bool]
) -> Varied:
    """The inputs with other numbers where they are the same for all, one input at a time, as far as they are taken."""
    batch, drawn, held = dict(inputs), {}, []
    for name, x in inputs.items():
        if not is_same_for_all(x):
            continue
        for one in draws(name, x):
            other = {**batch, name: drawn_like(x, one, generator)}
            if is_taken(other):
                batch, drawn[name] = other, one
                break
        else:
            held.append(name)
    return Varied(batch, drawn, tuple(held))


def varied(model: nn.Module, inputs: Mapping[str, Tensor]) -> Varied:
    """An example with other numbers where it has the same for every input.

    Args:
        model: any module on the CPU; its weights are not looked at.
        inputs: a batch by the names of the forward's arguments.
    """
    if not any(is_same_for_all(x) for x in inputs.values()):
        return Varied(dict(inputs), {}, ())
    plain, generator = Plain(model), torch.Generator().manual_seed(0)
    state = plain.generic(generator)
    if outputs_for(plain, state, inputs) is None:
        return Varied(dict(inputs), {}, ())  # the trace says what is wrong with it
    return redrawn(inputs, generator, lambda batch: outputs_for(plain, state, batch) is not None)


def outputs_for(plain: Plain, state: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor | None:
    """A model's outputs for a batch, flattened; None where it refuses, or gives nothing or what is not finite."""
    try:
        out = plain.kept(state, in_float64(inputs))
    except Exception:  # a model's own code refuses inputs in any way it likes
        return None
    return out if out.numel() > 0 and bool(out.isfinite().all()) else None
