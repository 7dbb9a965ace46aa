"""Results of a fusion: what merge methods told of their merges."""

import torch
from torch import nn

from fusionlab import FusionModule
from fusionlab.fusion import Candidate, Fused, Fuser, FusionPlan, TaskModels
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from fusionlab.stages import run
from tests.commands.small import vit
from tests.fusion.test_module import trainer
from tests.fusion.test_searching import Drawn


def test_notes_name_the_merges_that_they_are_about() -> None:
    """One that several merges share is told once; what was polished is made of the merge that it started from."""
    model = nn.Linear(1, 1)
    fused = Fused(
        candidates=[
            Candidate(("a",), "end model", "-", model),
            Candidate(("a", "b"), "soup", "none", model, notes=["Kept a."]),
            Candidate(("a", "b"), "soup", "learned", model, notes=["Kept a and b."]),
            Candidate(("a", "b"), "soup, polished", "learned", model, notes=["Kept a and b."]),
            Candidate(("a", "b"), "simple", "learned", model),
        ]
    )
    assert fused.notes == [
        "`soup` unmatched: Kept a.",
        "`soup` matched by `learned` and `soup, polished` matched by `learned`: Kept a and b.",
    ]


def test_a_soup_tells_of_each_merge_which_end_models_it_kept() -> None:
    """By their names, unmatched and matched, and of what was polished too; the numbers are those of what it kept."""
    models = {name: vit(seed) for seed, name in enumerate(("one", "two", "three"))}
    plan = FusionPlan({"paper": recipe("paper")}, {"soup": {}, "simple": {}}, polish=PolishOptions(steps=1))
    fused = run(Fuser(models, plan, Inputs.of([Drawn()], 3)).fuse())
    merges = {(one.method, one.matching): one for one in fused.candidates}
    for matching in ("none", "paper"):
        (note,) = merges["soup", matching].notes
        assert list(merges["soup, polished", matching].notes) == [note]
        assert list(merges["simple", matching].notes) == []
        kept = [name for name in models if name in note.split(" of 3 models")[0]]
        assert kept
        sources = list(models.values()) if matching == "none" else fused.matched["paper"].twins
        states = [sources[list(models).index(name)].state_dict() for name in kept]
        for name, tensor in merges["soup", matching].model.state_dict().items():
            torch.testing.assert_close(tensor, torch.stack([state[name] for state in states]).mean(0))
    assert fused.kept is not None
    assert fused.kept.notes
    assert any("`soup, polished` matched by `paper`" in note for note in fused.notes)


def test_a_module_tells_it_too() -> None:
    """In the merge that is kept and in its results, also where heads are of each task's own."""
    module = FusionModule(
        {"a": vit(0), "b": vit(1)}, "none", {"adamerging": {"steps": 1, "by": "task"}}, base=vit(2), heads="own",
        inputs=Inputs.of([Drawn(), Drawn(1)], 2),
    )  # fmt: skip
    trainer().fit(module)
    assert isinstance(module.kept.model, TaskModels)
    (note,) = module.kept.notes
    assert note.startswith("Coefficients of the task vectors are 0.")
    assert " for a and " in note
    assert module.results.notes == [f"`adamerging` unmatched: {note}"]
