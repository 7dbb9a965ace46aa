"""The line between two models."""

from collections.abc import Mapping
from os import PathLike

import torch
from torch import nn

from fusionlab.api.given import Source, module_of
from fusionlab.api.growing import of_one_size
from fusionlab.errors import InputError
from fusionlab.evaluation.line import move_along_line, refuse_points
from fusionlab.evaluation.results import UNMATCHED, Curve
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.forward import LABELS
from fusionlab.inputs import Batches
from fusionlab.merging.settling import settling
from fusionlab.models import refuse_unlike, with_state


@torch.no_grad()
def barrier(
    a: nn.Module | Source,
    b: nn.Module | Source,
    data: Batches,
    points: int = 11,
    inputs: Batches | None = None,
    correct: bool = False,
) -> Curve:
    """Loss and main metric on the straight line from `a` to `b`; ``.barrier`` is how far the loss rises above its ends.

    Args:
        a: the model at position 0, on the device to use, or the path of its checkpoint; not modified.
        b: the model at position 1, of the same class; the smaller one of two sizes is grown first, as `grow` does it.
        data: batches with ``labels``; gone through once for each point, so no one-way iterator.
        points: evenly spaced positions, both ends included; at least 3.
        inputs: batches, labels ignored, that the points between are run on, other than those they are measured on:
            BatchNorm layers get the running statistics of each point. Without, those of the ends are averaged, which
            tells little.
        correct: whether every unit of a point gets the mean and spread that it has between the two (REPAIR), for which
            inputs are needed.

    Raises:
        InputError: a correction without inputs, too few points or too many, no data, or models that do not fit each
            other.
    """
    a, b = module_of(a, "a"), module_of(b, "b")
    refuse_points(points, may_be_none=False)
    if isinstance(data, str | PathLike):
        raise InputError(
            f"data is the path {data}; expected batches with {LABELS!r}, such as the test_dataloader() of "
            f"fusionlab.data.own_data({str(data)!r}, CHECKPOINT) after its setup('test')"
        )
    if correct and inputs is None:
        raise InputError("correct has to run the models, and no inputs were given; expected inputs")
    for name, batches in (("data", data), ("inputs", [] if inputs is None else inputs)):
        if iter(batches) is batches:
            raise InputError(f"{name} can be gone through only once; expected a list or a DataLoader")
    first = next(iter(data), None)
    if first is None:
        raise InputError("data holds no batch; expected at least one")
    if not isinstance(first, Mapping) or LABELS not in first:
        held = ", ".join(map(str, first)) if isinstance(first, Mapping) else type(first).__name__
        raise InputError(f"the batches of data hold {held}, without {LABELS!r}; expected labels, to measure loss by")
    a, b = of_one_size([a, b], None, fill=False)
    refuse_unlike({"a": a, "b": b})
    positions = [index / (points - 1) for index in range(points)]
    model, found = with_state(a, a.state_dict()), []
    settle = None if inputs is None else settling(a, b, inputs, correct)
    for position in positions:
        move_along_line(model, a, b, position)
        if settle is not None:
            settle(model, position)
        scores = make_scores(a).to(next(model.parameters()).device)
        for batch in data:
            scores.update(model, batch)
        found.append(scores.compute())
    loss, score = (tuple(values[metric] for values in found) for metric in ("loss", scores.main))
    return Curve("b", "a", UNMATCHED, "data", None, tuple(positions), loss, score, scores.main)
