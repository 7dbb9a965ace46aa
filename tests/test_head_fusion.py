"""Models whose tasks differ: heads joined by label, or each kept on the merged body; no head leaks into another."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.fused import TestSet
from fusionlab.head_fusion import OwnHeadsFusionModule, TaskModels, UnionHeadsFusionModule
from fusionlab.heads import head_parameters
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
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


def rows_of(module: Any, *loaders: list[dict[str, Tensor]]) -> Any:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar"), False
    )
    trainer = Trainer(accelerator="cpu", devices=1, **quiet)
    trainer.test(module, [DataLoader(loader, batch_size=4) for loader in loaders], verbose=False)  # type: ignore[arg-type]
    return module.rows


def own_module(**keywords: Any) -> OwnHeadsFusionModule:
    models = {"animals": named(0, ["cat", "dog", "cow"]), "colours": named(1, ["red", "blue"])}
    sets = (TestSet("animals", owner=0), TestSet("colours", owner=1))
    return OwnHeadsFusionModule(models, {"weights": recipe("weights")}, test_sets=sets, **keywords)


def test_own_heads_answer_for_their_tasks() -> None:
    """One model for each task: the same merged body, the twin's own head bit by bit, functions preserved."""
    module = own_module()
    merged = module.fuse().kept
    assert merged is not None
    assert isinstance(merged.model, TaskModels)
    matched = module.fused.matched["weights"]
    for model, twin, alignment, task in zip(
        module.end_models, matched.twins, matched.alignments, merged.model.tasks, strict=True
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
    module = own_module()
    module.fuse()
    rows = rows_of(module, samples(6, 3, 0), samples(5, 2, 1))
    found = {(row.models, row.matching, row.data_set) for row in rows}
    both = ("animals", "colours")
    assert found == {
        (("animals",), "-", "animals"), (("colours",), "-", "colours"),
        *((both, matching, name) for matching in ("none", "weights") for name in both),
    }  # fmt: skip
    module.test_sets = (TestSet("animals", owner=0), TestSet("elsewhere", "out"))
    with pytest.raises(InputError, match="elsewhere belongs to no end model"):
        rows_of(module, samples(6, 3, 0), samples(5, 2, 1))


def test_own_heads_refuse_what_needs_one_head() -> None:
    """Learning and polish compare outputs."""
    inputs = Inputs.from_batches([{"pixel_values": torch.randn(4, 1, 8, 8)}], 2)
    learned = own_module(inputs=inputs)
    learned.matchings = {"learned": recipe("learned")}
    with pytest.raises(InputError, match="needs one head; expected weights"):
        learned.match("learned")
    with pytest.raises(InputError, match="polish needs one head"):
        own_module(inputs=inputs, polish=PolishOptions(steps=1)).fuse()


def test_own_heads_use_statistics_of_whole_models() -> None:
    """RegMean of the bodies from Gram matrices of the whole models."""
    inputs = Inputs.from_batches([{"pixel_values": torch.randn(12, 1, 8, 8)}], 2)
    module = own_module(inputs=inputs, methods={"regmean": {}, "simple": {}})
    regmean, simple = (module.merge(method, "weights").model for method in ("regmean", "simple"))
    assert isinstance(regmean, TaskModels)
    assert isinstance(simple, TaskModels)
    name = next(
        n for n in regmean.tasks[0].state_dict() if n.endswith("intermediate.dense.weight") or "fc1.weight" in n
    )
    assert not torch.equal(regmean.tasks[0].state_dict()[name], simple.tasks[0].state_dict()[name])


def test_union_heads_know_every_label() -> None:
    """Rows of labels that one model knows are that model's; labels of the data are found by name."""
    models = {"a": named(0, ["x", "y"]), "b": named(1, ["y", "z"])}
    sets = (TestSet("one", class_names=("x", "y")), TestSet("two", class_names=("z", "y")))
    module = UnionHeadsFusionModule(models, {}, test_sets=sets)
    merged = module.fuse().kept
    assert merged is not None
    assert module.union.labels == ("x", "y", "z")
    layer = module.union.layers[0]
    bias = merged.model.state_dict()[f"{layer}.bias"]
    first, second = (model.state_dict()[f"{layer}.bias"] for model in models.values())
    assert torch.allclose(bias, torch.stack([first[0], (first[1] + second[0]) / 2, second[1]]))
    one, two = samples(6, 2, 0), samples(6, 2, 1)
    rows = rows_of(module, one, two)
    accuracy = {(row.models, row.data_set): row.value for row in rows if row.metric == "accuracy"}
    with torch.no_grad():
        batch = torch.stack([sample["pixel_values"] for sample in two])
        wanted = torch.tensor([2, 1])[torch.stack([sample["labels"] for sample in two])]
        right = (merged.model(batch).logits.argmax(-1) == wanted).float().mean()
        # The first model knows x and y, so it can be right about y at most.
        own = models["a"](batch).logits.argmax(-1)
    assert accuracy[("a", "b"), "two"] == pytest.approx(float(right))
    assert accuracy[("a",), "two"] == pytest.approx(float(((own == 1) & (wanted == 1)).float().mean()))
    with pytest.raises(InputError, match="no end model knows the label 'w'"):
        module.labels({"labels": torch.zeros(1, dtype=torch.long)}, TestSet("three", class_names=("w",)))
