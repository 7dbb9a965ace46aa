"""Polish and the distillation under it: targets against their formulas, the student towards its teachers."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, cross_entropy, kl_div
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForQuestionAnswering, BertForTokenClassification, CLIPConfig, CLIPModel

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.learning.batches import DistillationBatch
from fusionlab.learning.distillation import Kind, Targets, distillation_loss, output_of, teacher_targets
from fusionlab.merging import merge_states
from fusionlab.models import with_state
from fusionlab.polish import Polishing, PolishOptions, polish
from fusionlab.probes import probes
from fusionlab.stages import StagedModule, Stages, result_of
from fusionlab.trainers import quiet_trainer
from tests.commands.small import bert, randomized, timm_vit, vit
from tests.symmetry.models import laws

TEXT = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 20,
}  # fmt: skip


def images(count: int = 32, seed: int = 0) -> dict[str, Tensor]:
    return {"pixel_values": torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) * 2 - 1}


def states_of(models: list[nn.Module]) -> list[dict[str, Tensor]]:
    return [copy.deepcopy(model.state_dict()) for model in models]


# --- what is taught ------------------------------------------------------------------------------------------------


def test_classes_are_taught_as_the_mean_of_probabilities_and_not_of_logits() -> None:
    models, batch = [vit(0), vit(1)], images()
    targets = teacher_targets(models, batch)
    assert targets.kind == "classes"
    expected = (logits(models[0], batch).softmax(-1) + logits(models[1], batch).softmax(-1)) / 2
    assert torch.allclose(targets.values, expected)
    alone = teacher_targets(models, batch, own=1)
    assert torch.allclose(alone.values, logits(models[1], batch).softmax(-1))


@laws
@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_the_loss_is_least_at_the_teacher(seed: int, temperature: float) -> None:
    """Against torch: soft cross-entropy at temperature 1; at any, its excess is the divergence from the teacher."""
    draw = torch.Generator().manual_seed(seed)
    teacher, student = torch.randn(2, 6, 5, generator=draw, dtype=torch.float64)
    targets = Targets(teacher.softmax(-1), "classes")
    loss = distillation_loss(student, targets, {}, temperature)
    if temperature == 1:
        assert torch.allclose(loss, cross_entropy(student, teacher.softmax(-1)))
    divergence = kl_div(
        (student / temperature).log_softmax(-1), (teacher / temperature).log_softmax(-1), log_target=True,
        reduction="batchmean",
    )  # fmt: skip
    excess = loss - distillation_loss(teacher + 3, targets, {}, temperature)
    assert torch.allclose(excess, temperature**2 * divergence, atol=1e-8)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_labels_are_softened_with_the_student(temperature: float) -> None:
    """Several labels at once: torch's binary cross-entropy of sigmoid(output / T) against p^(1/T) made to sum to 1."""
    student, teacher = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    present, absent = (teacher.sigmoid() ** (1 / temperature), (-teacher).sigmoid() ** (1 / temperature))
    expected = binary_cross_entropy((student / temperature).sigmoid(), present / (present + absent))
    loss = distillation_loss(student, Targets(teacher.sigmoid(), "labels"), {}, temperature)
    assert torch.allclose(loss, temperature**2 * expected)


@pytest.mark.parametrize("kind", ["classes", "labels", "values"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_teacher_itself_has_nothing_to_learn(kind: Kind, temperature: float) -> None:
    """The gradient there is zero, and elsewhere it is not."""
    teacher, other = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = {"classes": teacher.softmax(-1), "labels": teacher.sigmoid(), "values": teacher}[kind]
    for student, at_rest in ((teacher.clone(), True), (other, False)):
        loss = distillation_loss(student.requires_grad_(), Targets(values, kind), {}, temperature)
        (gradient,) = torch.autograd.grad(loss, student)
        assert (float(gradient.abs().max()) < 1e-12) == at_rest


@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_labels_that_are_certain_are_softened_to_finite_numbers(temperature: float) -> None:
    """Probabilities of exactly 0 and 1 in float32."""
    output = torch.tensor([[-30.0, 30.0]], requires_grad=True)
    loss = distillation_loss(output, Targets(torch.tensor([[0.0, 1.0]]), "labels"), {}, temperature)
    (gradient,) = torch.autograd.grad(loss, output)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_hidden_tokens_do_not_count() -> None:
    """Token by token, the loss does not see what the student says where the mask is 0."""
    model = randomized(BertForTokenClassification(BertConfig(**TEXT, num_labels=3)), 0)
    batch = {"input_ids": torch.arange(12).reshape(2, 6), "attention_mask": torch.tensor([[1] * 6, [1] * 3 + [0] * 3])}
    targets = teacher_targets([model], batch)
    output = output_of(randomized(copy.deepcopy(model), 1), batch)
    loss = distillation_loss(output, targets, batch)
    changed = output.clone()
    changed[1, 3:] = 100.0
    assert torch.equal(distillation_loss(changed, targets, batch), loss)
    changed[1, 2] = 100.0
    assert not torch.equal(distillation_loss(changed, targets, batch), loss)


def test_labels_nobody_knows_do_not_count_and_known_ones_are_averaged_over_those_who_know() -> None:
    """Several labels at once: unknown is not negative."""
    models = [bert(0), bert(1)]
    for model in models:
        model.config.problem_type = "multi_label_classification"
    batch = {"input_ids": torch.randint(31, (5, 8), generator=torch.Generator().manual_seed(0))}
    known = [torch.tensor([True, True, False, False]), torch.tensor([False, True, True, False])]
    targets = teacher_targets(models, batch, known=known)
    first, second = (logits(model, batch).sigmoid() for model in models)
    expected = torch.stack((first[:, 0], (first[:, 1] + second[:, 1]) / 2, second[:, 2]), 1)
    assert targets.kind == "labels"
    assert torch.allclose(targets.values[:, :3], expected)
    output = torch.zeros(5, 4)
    loss = distillation_loss(output, targets, batch)
    assert torch.equal(distillation_loss(output.index_fill(1, torch.tensor([3]), 9.0), targets, batch), loss)
    assert not torch.equal(distillation_loss(output.index_fill(1, torch.tensor([2]), 9.0), targets, batch), loss)


def test_a_teacher_alone_gives_no_probability_to_classes_it_does_not_know() -> None:
    """One class of several: what a model teaches on its own inputs are its own classes."""
    known = [torch.arange(10) < 5, torch.arange(10) >= 5]
    targets = teacher_targets([vit(0), vit(1)], images(), own=1, known=known)
    assert targets.values[:, :5].abs().max() == 0
    assert torch.allclose(targets.values[:, 5:], logits(vit(1), images())[:, 5:].softmax(-1))


def test_regression_question_answering_and_timm_have_targets_of_their_kind() -> None:
    regression = bert(0)
    regression.config.problem_type = "regression"
    ids = {"input_ids": torch.randint(31, (5, 8), generator=torch.Generator().manual_seed(0))}
    targets = teacher_targets([regression], ids)
    assert targets.kind == "values"
    assert torch.allclose(distillation_loss(targets.values + 2, targets, ids), torch.tensor(4.0))
    question = randomized(BertForQuestionAnswering(BertConfig(**TEXT)), 0)
    found = teacher_targets([question], ids)
    assert found.kind == "classes"
    assert torch.allclose(found.values[:, 1], question(**ids).end_logits.softmax(-1))
    assert teacher_targets([timm_vit()], images()).kind == "classes"


# --- polish --------------------------------------------------------------------------------------------------------


def merge_of(models: list[nn.Module]) -> nn.Module:
    return with_state(models[0], merge_states([model.state_dict() for model in models]))


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_polish_brings_a_merge_towards_its_teachers_and_leaves_all_inputs_alone(build: object) -> None:
    """The loss falls on inputs that were not trained on; end models and merge are bit for bit what they were."""
    models = [build(0), build(1)]  # type: ignore[operator]
    merged = merge_of(models)
    before = states_of([*models, merged])
    found = polish(merged, models, [images(64, seed) for seed in range(4)], PolishOptions(steps=60, batch_size=32))
    assert type(found) is type(merged)
    assert not found.training
    fresh = images(128, 99)
    targets = teacher_targets(models, fresh)
    loss = [float(distillation_loss(output_of(model, fresh), targets, fresh).detach()) for model in (merged, found)]
    floor = float(distillation_loss(targets.values.log(), targets, fresh))
    assert loss[1] - floor < 0.5 * (loss[0] - floor)
    for model, state in zip([*models, merged], before, strict=True):
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    models = [vit(0), vit(1)]
    found = [
        polish(merge_of(models), models, [images()], PolishOptions(steps=3, batch_size=8, seed=seed)).state_dict()
        for seed in (0, 0, 1)
    ]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert any(not torch.equal(found[0][name], found[2][name]) for name in found[0])


def batches_of(stage: Polishing) -> list[list[DistillationBatch]]:
    """What a stage learns on, one list for each step."""

    class Holder(StagedModule):
        def stages(self) -> Stages[dict[str, Tensor]]:
            return result_of(stage)

    module = Holder()
    module.trainer = quiet_trainer(accelerator="cpu", devices=1)
    stage.begin(module)
    return list(stage.batches(module))


def test_each_end_model_teaches_alone_on_its_own_inputs() -> None:
    """With one set of inputs each, a batch's targets are those of the model whose inputs they are."""
    models = [vit(0), vit(1)]
    own = [[images(16, 0)], [images(16, 1)]]
    seen = batches_of(Polishing(merge_of(models), models, own, PolishOptions(steps=2, batch_size=8)))
    assert len(seen) == 2
    for batches in seen:
        for index, batch in enumerate(batches):
            assert batch.own == index
            expected = logits(models[index], batch.inputs).softmax(-1)
            assert batch.targets is not None
            assert torch.allclose(batch.targets.values, expected, atol=1e-6)
    polish(merge_of(models), models, own, PolishOptions(steps=2, batch_size=8))


def test_a_half_precision_merge_is_trained_in_float32_and_returned_in_its_type() -> None:
    models = [vit(0), vit(1)]
    merged = merge_of(models).to(torch.bfloat16)
    found = polish(merged, models, [images()], PolishOptions(steps=4, batch_size=8, learning_rate=1e-2))
    assert {parameter.dtype for parameter in found.parameters()} == {torch.bfloat16}
    assert not torch.equal(found.classifier.weight, merged.classifier.weight)


@pytest.mark.parametrize(
    ("given", "trained"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_the_student_is_trained_in_float32_or_better(given: torch.dtype, trained: torch.dtype) -> None:
    models = [vit(0).to(given), vit(1).to(given)]
    stage = Polishing(merge_of(models), models, [images()], PolishOptions(steps=1))
    assert {parameter.dtype for parameter in stage.student.parameters()} == {trained}


def test_the_rate_rises_over_a_twentieth_and_falls_as_a_cosine() -> None:
    """Step by step against the formula; the last step is all but zero."""
    models = [vit(0), vit(1)]
    stage = Polishing(merge_of(models), models, [images()], PolishOptions(steps=60, learning_rate=0.01))
    optimizer, schedule = stage.make_optimizer()
    rates = []
    for _ in range(60):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    expected = [
        0.01 * step / 3 if step < 3 else 0.005 * (1 + math.cos(math.pi * (step - 3) / 57)) for step in range(60)
    ]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_where_an_output_compares_examples_targets_follow_the_draw() -> None:
    """CLIP's logits pair every image with every text of a batch, so targets of another batch would be wrong."""
    text = {**TEXT, "projection_dim": 8}
    vision = {**TEXT, "image_size": 8, "patch_size": 4, "num_channels": 1, "projection_dim": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    models = [randomized(CLIPModel(config), seed) for seed in (0, 1)]
    stage = Polishing(merge_of(models), models, probes(models, 8, batch_size=4), PolishOptions(2, batch_size=4))
    assert all(batch.targets is None for batches in batches_of(stage) for batch in batches)
    polish(merge_of(models), models, probes(models, 8, batch_size=4), PolishOptions(steps=2, batch_size=4))


def test_the_learning_rate_follows_the_width() -> None:
    assert PolishOptions().rate(vit(0)) == 1e-3
    wide = BertForTokenClassification(BertConfig(**{**TEXT, "hidden_size": 128, "intermediate_size": 256}))
    assert PolishOptions().rate(wide) == pytest.approx(0.0005)
    assert PolishOptions(learning_rate=0.3).rate(wide) == 0.3


def test_bad_options_and_inputs_are_refused_in_a_sentence() -> None:
    for name, value in (("steps", 0), ("learning_rate", 0.0), ("batch_size", 0), ("temperature", -1.0)):
        with pytest.raises(InputError, match=f"polish {name} is"):
            PolishOptions(**{name: value})
    models = [vit(0), vit(1)]
    with pytest.raises(InputError, match="holds no batch"):
        polish(models[0], models, [])
    with pytest.raises(InputError, match="3 sets of batches for 2 models"):
        polish(models[0], models, [[images()]] * 3)
    with pytest.raises(InputError, match="no end model"):
        polish(models[0], [], [images()])
    with pytest.raises(InputError, match="frozen"):
        polish(copy.deepcopy(models[0]).requires_grad_(False), models, [images()])


def test_fewer_examples_than_sources() -> None:
    """Each model has inputs of its own, and one step of one example is for both: some are drawn all the same."""
    models = [vit(0), vit(1)]
    sources = [
        DataLoader([{"pixel_values": image} for image in images(seed=seed)["pixel_values"]], batch_size=4)  # type: ignore[arg-type]
        for seed in range(2)
    ]
    found = polish(vit(0), models, sources, PolishOptions(steps=1, batch_size=1))
    assert not torch.equal(logits(found, images()), logits(vit(0), images()))
