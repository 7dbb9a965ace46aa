"""Methods that choose by scores go by what the data state, as tables do."""

from typing import Any

import pytest
from torch import nn

from fusionlab.fusion import Fuser, FusionPlan, TestSet
from fusionlab.inputs import Inputs
from fusionlab.stages import run
from tests.commands.small import vit
from tests.fusion.test_searching import Drawn


@pytest.mark.parametrize("metric", [None, "macro_f1", "matthews"])
def test_a_soup_is_chosen_by_the_metric_of_the_data(metric: Any) -> None:
    """Of several data sets by the mean; what it tells are these scores, of the best model alone and of the mean."""
    # Whichever is the best has a twin, and so a mean that is as good.
    models = {name: vit(place % 2) for place, name in enumerate(("one", "two", "three", "four"))}
    modules = [Drawn(seed) for seed in range(2)]
    for module in modules:
        module.metric, module.class_names = metric, [str(label) for label in range(10)]
    inputs = Inputs.of(modules, 4)
    assert inputs is not None

    def score(model: nn.Module) -> float:
        found = []
        for (_, facts), batches in zip(inputs.held_out_facts, inputs.held_out, strict=True):
            scores = TestSet.of(facts, "data").scores(model)
            for batch in batches:
                scores.update(model, batch)
            found.append(scores.compute()[metric or "accuracy"])
        return sum(found) / 2

    made = run(Fuser(models, FusionPlan(methods={"soup": {}}), inputs).merge("soup", "none"))
    (note,) = made.notes
    best = max(map(score, models.values()))
    assert f"alone has {best:.4g}" in note
    assert f"their mean has the score {score(made.model):.4g}" in note
