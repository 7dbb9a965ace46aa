"""Results as a run leaves them: scores and what each example adds, of models that answer given shares rightly."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fusionlab.evaluation.comparison import Domain, Measured, compare
from fusionlab.evaluation.contributions import Record
from fusionlab.evaluation.results import Results, Row

NAMES = ("one", "two")
SETS: tuple[tuple[str, Domain], ...] = (("digits", "in"),)


def judged(
    merges: Mapping[tuple[str, str], float],
    *,
    sets: Sequence[tuple[str, Domain]] = SETS,
    ends: tuple[float, float] = (0.955, 0.950),
    count: int = 400,
    chance: float = 0.1,
    broken: Sequence[tuple[str, str]] = (),
    kept: tuple[str, str] | None = None,
) -> Results:
    """Two end models and merges on some test sets.

    Args:
        merges: by method and matching, the share of the examples that is answered rightly; the harder ones are the
            same for all.
        sets: name and domain of each test set.
        ends: the shares of the end models.
        count: of the examples.
        chance: share of the largest class.
        broken: merges of which one loss is not a number.
        kept: method and matching of the merge that is kept.
    """
    rows: list[Row] = []
    measured: list[Measured] = []
    for name, domain in sets:
        order = np.random.default_rng(0).permutation(count)
        models = [((end,), "end model", "-", share) for end, share in zip(NAMES, ends, strict=True)]
        for models_in, method, matching, share in [*models, *((NAMES, *key, share) for key, share in merges.items())]:
            right = torch.from_numpy((order < round(share * count)).astype(np.float32))
            loss = 1 - right
            if (method, matching) in broken:
                loss[0] = math.nan
            record = Record()
            record.add("loss", "mean", loss, torch.ones_like(loss))
            record.add("accuracy", "mean", right, torch.ones_like(right))
            answers = record.answers(lambda actual: {"accuracy": chance})
            measured.append(Measured(models_in, method, matching, name, domain, answers))
            seconds = 1.5 if len(models_in) > 1 else None
            for metric, value in (("loss", float(loss.mean())), ("accuracy", float(right.mean()))):
                rows.append(Row(models_in, method, matching, name, domain, metric, value, seconds))
    comparisons, levels = compare(measured)
    return Results("A merge", NAMES, rows, comparisons=comparisons, levels=levels, kept=kept)
