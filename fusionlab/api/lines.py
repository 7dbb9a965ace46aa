"""The line between two models."""

import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.evaluation.line import move_along_line, refuse_points
from fusionlab.evaluation.results import UNMATCHED, Curve
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.inputs import Batches
from fusionlab.models import common_blueprint, with_state


@torch.no_grad()
def barrier(a: nn.Module, b: nn.Module, data: Batches, points: int = 11) -> Curve:
    """Loss and main metric on the straight line from `a` to `b`; ``.barrier`` is how far the loss rises above its ends.

    Args:
        a: the model at position 0, on the device to use; not modified.
        b: the model at position 1, of the same class.
        data: batches with ``labels``; gone through once for each point, so no one-way iterator.
        points: evenly spaced positions, both ends included; at least 2.

    Raises:
        InputError: too few points or too many, no data, or models that do not fit each other.
    """
    refuse_points(points, may_be_none=False)
    if iter(data) is data:
        raise InputError("data can be gone through only once; expected a list or a DataLoader")
    if next(iter(data), None) is None:
        raise InputError("data holds no batch; expected at least one")
    common_blueprint({"a": a, "b": b})
    positions = [index / (points - 1) for index in range(points)]
    model, found = with_state(a, a.state_dict()), []
    for position in positions:
        move_along_line(model, a, b, position)
        scores = make_scores(a).to(next(model.parameters()).device)
        for batch in data:
            scores.update(model, batch)
        found.append(scores.compute())
    loss, score = (tuple(values[metric] for values in found) for metric in ("loss", scores.main))
    return Curve("b", "a", UNMATCHED, "data", None, tuple(positions), loss, score, scores.main)
