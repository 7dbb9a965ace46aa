"""What ``auto`` stands for: a choice with its reason and cost, and who makes it."""

import torch

from fusionlab.advice import choose
from fusionlab.fusion import FusionModule
from fusionlab.trainers import quiet_trainer
from tests.commands.small import vit


def test_a_choice_tells_its_reason_and_cost() -> None:
    """Before the work what it takes, after it what was done."""
    models = {"a": vit(0), "b": vit(1)}
    found = {has_inputs: choose(models, has_inputs) for has_inputs in (True, False)}
    assert [found[has].match for has in (True, False)] == ["learned", "weights"]
    for has, match in ((True, "learned"), (False, "weights")):
        assert found[has].sentence.startswith("These are models trained apart (other seeds)")
        assert f"So they are matched by {match}: about " in found[has].sentence
        assert "Expected by the weights alone, which the scores here may not bear out: " in found[has].note
        assert found[has].note.endswith(f"So the models were matched by {match} (match: auto).")
    near = vit(0)
    with torch.no_grad():
        near.classifier.weight.mul_(1.01)
    assert choose({"a": vit(0), "b": near}, True).sentence.endswith("So nothing is matched.")


def test_fusion_modules_choose_by_default() -> None:
    """With inputs until the fit knows better."""
    module = FusionModule([vit(0), vit(1)])
    assert list(module.plan.matchings) == ["learned"]
    quiet_trainer(accelerator="cpu").fit(module)
    assert module.choice is not None
    assert (list(module.plan.matchings), module.kept.matching, module.choice.match) == (["weights"], *["weights"] * 2)
    assert FusionModule([vit(0), vit(0)]).plan.matchings == {}
    assert FusionModule([vit(0), vit(1)], "paper").choice is None
