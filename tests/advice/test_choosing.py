"""What ``auto`` stands for: a choice with its reason and cost, and who makes it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
)

import fusionlab
from fusionlab.advice import choose, choosing
from fusionlab.fusion import FusionModule
from fusionlab.matching import recipe as recipes
from fusionlab.polish import PolishOptions
from fusionlab.symmetry import Alignment
from fusionlab.trainers import quiet_trainer
from tests.commands.small import randomized, vit
from tests.probes.models import TEXT, clip, writer


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned matching of two steps."""
    monkeypatch.setitem(recipes.RECIPES, "learned", fusionlab.recipe("learned", steps=2, batch_size=4))


@pytest.mark.parametrize(
    ("has_inputs", "may_draw", "match", "way"),
    [
        (True, True, "learned", "learned"),
        (False, True, "learned", "learned on synthetic inputs"),
        (False, False, "weights", "weights"),
    ],
)
def test_a_choice_tells_its_reason_and_cost(has_inputs: bool, may_draw: bool, match: str, way: str) -> None:
    """Before the work what it takes, after it what was done."""
    found = choose({"a": vit(0), "b": vit(1)}, has_inputs, may_draw=may_draw)
    assert (found.match, found.draws) == (match, way != match)
    assert found.sentence.startswith("These are models trained apart (other seeds)")
    assert f"So they are matched by {way}: about " in found.sentence
    assert "Expected by the weights alone, which the scores here may not bear out: " in found.note
    assert found.note.endswith(f"So the models were matched by {way} (match: auto).")


@pytest.mark.parametrize("has_inputs", [True, False])
def test_what_needs_no_matching_gets_none(has_inputs: bool) -> None:
    near = vit(0)
    with torch.no_grad():
        near.classifier.weight.mul_(1.01)
    assert choose({"a": vit(0), "b": near}, has_inputs).sentence.endswith("So nothing is matched.")


def masked(**changes: int) -> nn.Module:
    return BertForMaskedLM(BertConfig(**TEXT, **changes))


def resnet() -> nn.Module:
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(num_channels=1, **sizes))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (writer, "learned"),
        (lambda: masked(mask_token_id=4), "learned"),
        (masked, "weights"),  # no texts without its mask
        (lambda: BertForSequenceClassification(BertConfig(**TEXT, mask_token_id=4)), "weights"),
        (clip, "weights"),
        (resnet, "weights"),
    ],
)
def test_synthetic_inputs_are_drawn_where_they_teach(make: Callable[[], nn.Module], match: str) -> None:
    """Images, and texts that models write; not random tokens, several modalities, or what statistics run over."""
    models = {"a": randomized(make(), 0), "b": randomized(make(), 1)}
    found = choose(models, has_inputs=False)
    assert found.advice.case == "other_seeds"
    assert found.match == match


def test_nets_with_running_statistics_are_told_of_what_is_done() -> None:
    """Not of learning, which moves no channel, but of correlations, and of the spread of channels that is corrected."""
    models = {"a": randomized(resnet(), 0), "b": randomized(resnet(), 1)}
    found = choose(models, has_inputs=True)
    assert found.match == "correlation"
    assert "correlations of their activations" in found.note
    assert "learn" not in found.note
    assert "--correct" in found.note
    assert "by learning" in choose({"a": vit(0), "b": vit(1)}, has_inputs=True).note


def test_a_class_that_fails_at_writing_is_matched_by_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was before synthetic inputs were drawn unasked."""

    def broken(*_: object, **__: object) -> None:
        raise IndexError("in a class of others")

    models = {name: randomized(writer(), seed) for seed, name in enumerate("ab")}
    monkeypatch.setattr(GPT2LMHeadModel, "generate", broken)
    assert choose(models, has_inputs=False).match == "weights"


def test_nothing_is_learned_for_long_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on what the sentence tells."""
    models, seconds = {"a": vit(0), "b": vit(1)}, choosing.MOST_DRAWN_SECONDS
    cost = choosing.cost_of(choose(models, False).weights, "learned").seconds
    assert cost < seconds
    monkeypatch.setattr(choosing, "MOST_DRAWN_SECONDS", 0.99 * cost)
    assert choose(models, False).match == "weights"
    assert choose(models, True).match == "learned"


def test_what_weights_undo_is_not_learned() -> None:
    """A fine-tune that was brought into a basis that is drawn: by weights it comes back."""
    base, near = vit(0), vit(0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    moved = Alignment.random(fusionlab.blueprint(near), generator).apply(near)
    found = choose({"base": base, "moved": moved}, has_inputs=False)
    assert (found.advice.case, found.match) == ("other_seeds", "weights")
    assert choose({"base": base, "moved": moved, "other": vit(1)}, has_inputs=False).match == "learned"


@pytest.mark.usefixtures("few_steps")
def test_heads_of_other_labels_become_one() -> None:
    """Without data too; such models are not matched before the choice, since they have no blueprint in common."""
    labels = {place: f"thing {place}" for place in range(7)}
    module = FusionModule([vit(0), vit(1, id2label=labels, num_labels=7)], heads="union")
    quiet_trainer(accelerator="cpu").fit(module)
    assert module.kept.matching == "learned"
    assert module.kept.model.config.num_labels == 17


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("options", "match"),
    [({}, "learned"), ({"polish": PolishOptions(steps=1)}, "weights"), ({"heads": "own"}, "weights")],
)
def test_fusion_modules_choose_by_default(options: dict[str, object], match: str) -> None:
    """With inputs until the fit knows better; no learning where a polish follows, or without outputs in common."""
    module = FusionModule([vit(0), vit(1)], **options)
    assert list(module.plan.matchings) == ["weights" if "heads" in options else "learned"]
    quiet_trainer(accelerator="cpu").fit(module)
    assert module.choice is not None
    assert (list(module.plan.matchings), module.kept.matching, module.choice.match) == ([match], match, match)


def test_what_was_named_is_not_chosen() -> None:
    assert FusionModule([vit(0), vit(0)]).plan.matchings == {}
    assert FusionModule([vit(0), vit(1)], "paper").choice is None
