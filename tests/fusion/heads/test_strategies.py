"""Models whose tasks differ: heads joined by label, or each kept on the merged body; no head leaks into another."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.fusion import CandidateTest, Fuser, FusionPlan, Heads, TaskModels, TestSet
from fusionlab.fusion.heads import UnionHeads
from fusionlab.fusion.heads.bodies import body_blueprint
from fusionlab.fusion.heads.parameters import head_parameters
from fusionlab.inputs import Inputs
from fusionlab.learning.distillation import distillation_loss, output_of, teacher_targets
from fusionlab.matching.recipe import recipe
from fusionlab.merging import merge_states
from fusionlab.polish import PolishOptions
from fusionlab.stages import run
from tests.commands.small import vit

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def named(seed: int, labels: list[str]) -> nn.Module:
    """A small ViT with these labels."""
    model = vit(seed, num_labels=len(labels))
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}
    return model


def samples(count: int, classes: int, seed: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    return [{"pixel_values": image, "labels": label} for image, label in zip(pixels, labels, strict=True)]


def rows_of(fuser: Fuser, sets: Sequence[TestSet], *loaders: list[dict[str, Tensor]]) -> Any:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar"), False
    )
    trainer = Trainer(accelerator="cpu", devices=1, **quiet)
    module = CandidateTest(fuser.fused.candidates, sets, fuser.heads)
    trainer.test(module, [DataLoader(loader, batch_size=4) for loader in loaders], verbose=False)  # type: ignore[arg-type]
    return module.rows


def own_fuser(**keywords: Any) -> Fuser:
    models = {"animals": named(0, ["cat", "dog", "cow"]), "colours": named(1, ["red", "blue"])}
    return Fuser(models, FusionPlan(**{"matchings": {"weights": recipe("weights")}, "heads": "own", **keywords}))


def test_own_heads_answer_for_their_tasks() -> None:
    """One model for each task: the same merged body, the twin's own head bit by bit, functions preserved."""
    fuser = own_fuser()
    merged = run(fuser.fuse()).kept
    assert merged is not None
    assert isinstance(merged.model, TaskModels)
    matched = fuser.fused.matched["weights"]
    for model, twin, alignment, task in zip(
        fuser.end_models, matched.twins, matched.alignments, merged.model.tasks, strict=True
    ):
        assert check_preservation(model, twin, alignment).exact < 1e-8
        head = head_parameters(task)
        assert head
        for name in head:
            assert torch.equal(task.state_dict()[name], twin.state_dict()[name]), name
    first, second = (task.state_dict() for task in merged.model.tasks)
    head = set(head_parameters(merged.model.tasks[0]))
    assert all(torch.equal(first[name], second[name]) for name in first if name not in head)


def test_own_heads_are_measured_on_their_own_sets() -> None:
    """Every end model on its set alone, every merge on both; a set of nobody is refused."""
    fuser = own_fuser()
    run(fuser.fuse())
    sets = (TestSet("animals", owner=0), TestSet("colours", owner=1))
    rows = rows_of(fuser, sets, samples(6, 3, 0), samples(5, 2, 1))
    found = {(row.models, row.matching, row.data_set) for row in rows}
    both = ("animals", "colours")
    assert found == {
        (("animals",), "-", "animals"), (("colours",), "-", "colours"),
        *((both, matching, name) for matching in ("none", "weights") for name in both),
    }  # fmt: skip
    sets = (TestSet("animals", owner=0), TestSet("elsewhere", "out"))
    with pytest.raises(InputError, match="elsewhere belongs to no end model"):
        rows_of(fuser, sets, samples(6, 3, 0), samples(5, 2, 1))


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"correct": True}, "correct needs one head for all models; expected heads to be merged or union"),
        ({"methods": {"simple": {}, "soup": {}}}, "method 'soup' chooses by scores, .* heads is 'own'"),
        ({"matchings": {"mine": recipe("learned")}}, "matching 'mine' compares what models compute"),
    ],
)
def test_own_heads_refuse_what_needs_one_head(
    monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any], sentence: str
) -> None:
    """Whatever compares outputs, when the fuser is made: no inputs are drawn for it."""
    monkeypatch.setattr(Inputs, "synthetic", lambda *arguments, **options: pytest.fail("work was done"))
    with pytest.raises(InputError, match=sentence):
        own_fuser(**keywords)


def test_own_heads_are_polished_with_one_body() -> None:
    """Each task learns from its own end model on its own inputs: one body, heads as they were, a smaller loss."""
    draw = torch.Generator().manual_seed(0)
    inputs = Inputs.from_batches([[{"pixel_values": torch.randn(32, 1, 8, 8, generator=draw)}] for _ in range(2)], 2)
    models = {"animals": named(0, ["cat", "dog"]), "colours": named(1, ["red", "green", "blue"])}
    options = PolishOptions(steps=40, learning_rate=1e-2, batch_size=32, mixtures=0)
    fused = run(Fuser(models, FusionPlan(heads="own", polish=options), inputs).fuse())
    (before,) = [one.model for one in fused.candidates if one.method == "simple"]
    assert fused.kept is not None
    after = fused.kept.model
    assert fused.kept.method == "simple, polished"
    assert isinstance(before, TaskModels)
    assert isinstance(after, TaskModels)
    bodies = [body_of(task) for task in after.tasks]
    assert all(torch.equal(bodies[0][name], bodies[1][name]) for name in bodies[0])
    assert any(not torch.equal(bodies[0][name], tensor) for name, tensor in body_of(before.tasks[0]).items())
    losses = torch.zeros(2)
    for index, (model, old, new) in enumerate(zip(models.values(), before.tasks, after.tasks, strict=True)):
        assert all(torch.equal(new.state_dict()[name], model.state_dict()[name]) for name in head_parameters(model))
        (batch,) = inputs.own[index]
        targets = teacher_targets([model], batch)
        losses += torch.tensor([distillation_loss(output_of(one, batch), targets, batch) for one in (old, new)])
    assert losses[1] < losses[0] - 0.1


def test_union_heads_refuse_methods_that_choose_by_scores() -> None:
    """The data's labels are places among its own names, the merge's among the joined ones."""
    models = {"a": named(0, ["x", "y"]), "b": named(1, ["y", "z"])}
    with pytest.raises(InputError, match=r"method 'soup' chooses by scores, .* heads is 'union'"):
        Fuser(models, FusionPlan(methods={"soup": {}}, heads="union"))


def body_of(model: nn.Module) -> dict[str, Tensor]:
    head = set(head_parameters(model))
    return {name: tensor for name, tensor in model.state_dict().items() if name not in head}


def of_equal_labels(heads: Heads, method: str) -> nn.Module:
    """A merge of two models with as many labels, on the same inputs."""
    models = {"a": named(0, ["x", "y"]), "b": named(1, ["y", "z"])}
    pixels = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    inputs = Inputs.from_batches([{"pixel_values": pixels}], 2)
    merged = run(Fuser(models, FusionPlan(methods={method: {}}, heads=heads), inputs).merge(method, "none")).model
    return merged.tasks[1] if isinstance(merged, TaskModels) else merged


def test_own_heads_use_statistics_of_whole_models() -> None:
    """RegMean of the bodies, from Gram matrices of the whole models, is the body of RegMean of the whole models."""
    own, whole, simple = (
        body_of(of_equal_labels(*given)) for given in (("own", "regmean"), ("merged", "regmean"), ("merged", "simple"))
    )
    assert own.keys() == whole.keys()
    assert all(torch.equal(own[name], whole[name]) for name in own)
    assert not all(torch.allclose(own[name], simple[name], atol=1e-3) for name in own)


@pytest.mark.parametrize("method", ["task_arithmetic", "ties", "dare", "stock"])
def test_own_heads_take_the_body_of_a_base(method: str) -> None:
    """The base may have a head of its own: bodies are merged as if there were nothing else."""
    base = named(2, ["p", "q", "r"])
    models = {"a": named(0, ["w", "x"]), "b": named(1, ["y"])}
    merged = run(Fuser(models, FusionPlan(methods={method: {}}, heads="own"), base=base).merge(method, "none")).model
    assert isinstance(merged, TaskModels)
    bodies = [body_of(model) for model in models.values()]
    wanted = merge_states(bodies, method, blueprint=body_blueprint([base]), base=body_of(base))
    assert all(torch.equal(body_of(merged.tasks[0])[name], tensor) for name, tensor in wanted.items())


@pytest.mark.parametrize("method", ["regmean_pp", "adamerging"])
def test_methods_that_run_models_do_under_each_models_head(method: str) -> None:
    """Inputs of each task go through its own head; the merged body is one."""
    data = [[{"pixel_values": torch.stack([one["pixel_values"] for one in samples(6, 2, seed)])}] for seed in (0, 1)]
    models = {"animals": named(0, ["cat", "dog", "cow"]), "colours": named(1, ["red", "blue"])}
    given = {"adamerging": {"steps": 2}} if method == "adamerging" else {method: {}}
    plan = FusionPlan(methods=given, heads="own")
    merged = run(Fuser(models, plan, Inputs.from_batches(data, 2), base=vit(2)).fuse()).kept
    assert merged is not None
    assert isinstance(merged.model, TaskModels)
    first, second = (task.state_dict() for task in merged.model.tasks)
    body = [name for name in first if name.startswith("vit.")]
    assert all(torch.equal(first[name], second[name]) for name in body)
    plain = merge_states([model.state_dict() for model in (vit(0), vit(1))])
    assert any(not torch.allclose(first[name], plain[name], rtol=1e-4, atol=1e-6) for name in body)


def test_union_heads_know_every_label() -> None:
    """Rows of labels that one model knows are that model's; labels of the data are found by name."""
    models = {"a": named(0, ["x", "y"]), "b": named(1, ["y", "z"])}
    sets = (TestSet("one", class_names=("x", "y")), TestSet("two", class_names=("z", "y")))
    fuser = Fuser(models, FusionPlan(heads="union"))
    merged = run(fuser.fuse()).kept
    assert merged is not None
    assert isinstance(fuser.heads, UnionHeads)
    assert fuser.heads.union.labels == ("x", "y", "z")
    layer = fuser.heads.union.layers[0]
    bias = merged.model.state_dict()[f"{layer}.bias"]
    first, second = (model.state_dict()[f"{layer}.bias"] for model in models.values())
    assert torch.allclose(bias, torch.stack([first[0], (first[1] + second[0]) / 2, second[1]]))
    one, two = samples(6, 2, 0), samples(6, 2, 1)
    rows = rows_of(fuser, sets, one, two)
    accuracy = {(row.models, row.data_set): row.value for row in rows if row.metric == "accuracy"}
    with torch.no_grad():
        batch = torch.stack([sample["pixel_values"] for sample in two])
        wanted = torch.tensor([2, 1])[torch.stack([sample["labels"] for sample in two])]
        right = (merged.model(batch).logits.argmax(-1) == wanted).float().mean()
        # The first model knows x and y, so it can be right about y at most.
        own = models["a"](batch).logits.argmax(-1)
    assert accuracy[("a", "b"), "two"] == pytest.approx(float(right))
    assert accuracy[("a",), "two"] == pytest.approx(float(((own == 1) & (wanted == 1)).float().mean()))
    # Even where it likes none of the labels that it does know.
    (end,) = (one for one in fuser.fused.candidates if one.models == ("a",))
    silenced = fuser.heads.scored(end, sets[1])
    assert silenced is not None
    state = {name: tensor.clone() for name, tensor in silenced.state_dict().items()}
    state[f"{layer}.bias"][:2] -= 99
    disliking = vit(0, num_labels=3).eval()
    disliking.load_state_dict(state)
    with torch.no_grad():
        assert (disliking(batch).logits.argmax(-1) < 2).all()
    with pytest.raises(InputError, match="no end model knows the label 'w'"):
        fuser.heads.labels({"labels": torch.zeros(1, dtype=torch.long)}, TestSet("three", class_names=("w",)))
