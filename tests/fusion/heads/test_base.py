"""A base model under heads of different tasks."""

import torch
from torch import nn

from fusionlab.evaluation.distance import parameter_distance
from fusionlab.fusion import Fuser, FusionPlan, TaskModels
from fusionlab.matching.recipe import recipe
from fusionlab.stages import run
from tests.commands.small import vit


def labelled(seed: int, labels: list[str]) -> nn.Module:
    model = vit(seed, num_labels=len(labels))
    model.config.id2label = dict(enumerate(labels))
    return model.double()


def test_own_heads_move_the_body_of_a_base() -> None:
    """A base with a head of its own goes where the anchor's body goes, folded into its own head."""
    base = labelled(0, ["p", "q", "r"])
    ends = []
    for seed, labels in enumerate((["w", "x"], ["y"])):
        end = labelled(seed, labels)
        body = {name: tensor for name, tensor in base.state_dict().items() if not name.startswith("classifier")}
        draw = torch.Generator().manual_seed(seed)
        noisy = {n: x + 0.01 * torch.randn(x.shape, generator=draw, dtype=x.dtype) for n, x in body.items()}
        end.load_state_dict({**end.state_dict(), **noisy})
        ends.append(end)
    models = {"a": ends[0], "b": ends[1]}
    plan = FusionPlan({"weights": recipe("weights")}, {"task_arithmetic": {"lambda_": 0.0}}, heads="own")
    fuser = Fuser(models, plan, base=base)
    merged = run(fuser.merge("task_arithmetic", "weights")).model
    assert isinstance(merged, TaskModels)
    # With no step away from it, the merged body is the base's: under the head of the base's twin it is the base.
    assert fuser.base is not None
    moved = fuser.base.state("weights")
    body = merged.tasks[0].state_dict()
    assert all(torch.allclose(body[name], tensor) for name, tensor in moved.items())
    given, used = fuser.base.task_lengths("weights")[0]
    assert used < 2 * given
    assert parameter_distance(fuser.fused.matched["weights"].twins[0].state_dict(), ends[0].state_dict()) > 3 * given


def test_union_heads_take_a_base_whose_labels_are_its_own() -> None:
    """Rows of labels come from the models that know them, whatever head the base has."""
    models = {"a": labelled(0, ["x", "y"]), "b": labelled(1, ["y", "z"])}
    merged = [
        run(
            Fuser(models, FusionPlan(methods={"ties": {}}, heads="union"), base=base).merge("ties", "none")
        ).model.state_dict()
        for base in (labelled(2, ["p", "q", "r", "s"]), labelled(2, ["x", "y", "z"]))
    ]
    assert merged[0]["classifier.weight"].shape == (3, 16)
    assert all(torch.allclose(merged[0][name], merged[1][name]) for name in merged[0] if name.startswith("classifier"))
