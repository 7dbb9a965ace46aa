"""Refusals of test data that do not fit the models, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from fusionlab.errors import InputError, first_line
from fusionlab.forward import LABELS
from fusionlab.fusion.data import Data
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.results import TestSet
from fusionlab.misfits import label_names, refuse_other_classes, unnamed


def refuse_other_labels(model: nn.Module, test_set: TestSet) -> None:
    """Refuse classes that the data name otherwise than a classifier does, or in another order.

    Args:
        model: whose labels have names, or none.
        test_set: of which the classes may be the first ones of the model.

    Raises:
        InputError: names the first class that differs.
    """
    names = label_names(getattr(model, "config", model))
    if test_set.class_names is not None and names and not unnamed(names):
        refuse_other_classes(test_set.name, test_set.class_names, names[: len(test_set.class_names)])


@torch.no_grad()
def refuse_misfit(models: Sequence[nn.Module], data: Data, heads: HeadStrategy | None = None) -> None:
    """Score the first batch of every test set by a model, so that data of another kind are refused before any work.

    Args:
        models: the end models; a set that belongs to one of them is tried on that one.
        data: the test sets.
        heads: of the models, which may know labels by other places; those of the data if None.

    Raises:
        InputError: data without labels, inputs that the model does not take, or labels that it cannot predict or has in
            another order.
    """
    for test_set, loader in zip(data.sets, data.loaders, strict=True):
        batch = next(iter(loader))
        if not isinstance(batch, Mapping) or LABELS not in batch:
            raise InputError(f"the data {test_set.name!r} gives no {LABELS!r}; expected batches of inputs and labels")
        owner = test_set.owner if test_set.owner is not None and test_set.owner < len(models) else 0
        if heads is None or not heads.takes_any_order:
            refuse_other_labels(models[owner], test_set)
        try:
            known = batch if heads is None else heads.labels(batch, test_set)
            scores = test_set.scores(models[owner]) if heads is None else heads.scores(models[owner], test_set)
            scores.update(models[owner], known)
        except Exception as error:
            # Every model refuses foreign inputs in its own way.
            raise InputError(f"the data {test_set.name!r} does not fit the models: {first_line(error)}") from error
