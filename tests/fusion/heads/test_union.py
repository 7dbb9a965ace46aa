"""Joined heads: a model scores on data as it does alone, wherever its labels stand among those of all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForTokenClassification, GPT2Config, GPT2ForSequenceClassification

from fusionlab.errors import InputError
from fusionlab.evaluation.results import END_MODEL, NO_MATCHING
from fusionlab.fusion import Fuser, FusionPlan, TestSet
from fusionlab.fusion.heads import UnionHeads
from fusionlab.fusion.results import Candidate
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.stages import run
from tests.commands.small import vit
from tests.symmetry.models import generator, randomize

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 20}
PEOPLE = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
PLACES = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
FIRMS = ["O", "B-ORG", "I-ORG"]


def tagger(seed: int, names: list[str]) -> nn.Module:
    config = BertConfig(**SIZES, id2label=dict(enumerate(names)), label2id={name: k for k, name in enumerate(names)})
    return randomize(BertForTokenClassification(config), seed).float()


def classifier(seed: int, names: list[str], **changes: Any) -> nn.Module:
    model = vit(seed, num_labels=len(names), **changes)
    model.config.id2label = dict(enumerate(names))
    return model


def sentences(classes: int) -> dict[str, Tensor]:
    draw = generator(3)
    labels = torch.randint(classes, (12, 9), generator=draw)
    return {
        "input_ids": torch.randint(20, (12, 9), generator=draw),
        "labels": labels.index_fill(1, torch.tensor([0]), -100),
    }


def images(labels: Tensor) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(len(labels), 1, 8, 8, generator=generator(4)), "labels": labels}


def found(models: list[nn.Module], test_set: TestSet, batch: dict[str, Tensor], place: int) -> dict[str, float]:
    """What an end model under joined heads scores."""
    names = ["a", "b"]
    heads = UnionHeads(dict(zip(names, models, strict=True)))
    end = Candidate((names[place],), END_MODEL, NO_MATCHING, heads.models[names[place]])
    model = heads.scored(end, test_set)
    assert model is not None
    scores = heads.scores(model, test_set).keep_examples()
    scores.update(model, heads.labels(batch, test_set))
    assert scores.answers().contributions.keys() == scores.compute().keys()
    return scores.compute()


def alone(model: nn.Module, test_set: TestSet, batch: dict[str, Tensor]) -> dict[str, float]:
    scores = test_set.scores(model)
    scores.update(model, batch)
    return scores.compute()


@pytest.mark.parametrize("other", [PLACES, FIRMS])
def test_entities(other: list[str]) -> None:
    """In another order, and beside types that the other model does not know."""
    models = [tagger(0, PEOPLE), tagger(1, other)]
    for place, names in enumerate((PEOPLE, other)):
        batch, test_set = sentences(len(names)), TestSet("data", task="tokens", class_names=tuple(names))
        expected = alone(models[place], test_set, batch)
        assert found(models, test_set, batch, place) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("metric", [None, "macro_f1", "matthews"])
def test_classes(metric: str | None) -> None:
    names = [["no", "yes"], ["maybe", "yes", "no"]]
    models = [classifier(seed, own) for seed, own in enumerate(names)]
    for place, own in enumerate(names):
        batch = images(torch.randint(len(own), (20,), generator=generator(place)))
        options = {} if metric is None else {"metric": metric}
        test_set = TestSet("data", task="classification", class_names=tuple(own), options=options)
        expected = alone(models[place], test_set, batch)
        assert found(models, test_set, batch, place) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("task", [None, "multilabel"])
@pytest.mark.parametrize("other", [["fear", "joy", "anger"], ["fear", "shame"]])
def test_several_labels(other: list[str], task: Any) -> None:
    """Each is put in its place; one that the data do not have is unknown there."""
    names = [["anger", "joy", "fear"], other]
    models = [classifier(seed, own, problem_type="multi_label_classification") for seed, own in enumerate(names)]
    for place, own in enumerate(names):
        labels = torch.randint(2, (20, len(own)), generator=generator(place)).float()
        labels[0, 0] = -100
        test_set = TestSet("data", task=task, class_names=tuple(own))
        expected = alone(models[place], test_set, images(labels))
        scores = found(models, test_set, images(labels), place)
        assert scores["loss"] == pytest.approx(expected["loss"], abs=1e-6)
        assert scores["micro_f1"] == pytest.approx(expected["micro_f1"], abs=1e-6)


def test_a_classifier_without_a_bias_never_answers_with_a_label_that_it_does_not_know() -> None:
    """Where all logits that it has are negative, a row of zeros would win."""
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 16}
    models = []
    for seed, names in enumerate((["x", "y"], ["x", "z"])):
        config = GPT2Config(**sizes, pad_token_id=0, id2label=dict(enumerate(names)))
        models.append(randomize(GPT2ForSequenceClassification(config), seed).float())
    batch = {
        "input_ids": torch.randint(1, 20, (60, 5), generator=generator(2)),
        "labels": torch.randint(2, (60,), generator=generator(3)),
    }
    test_set = TestSet("data", task="classification", class_names=("x", "y"))
    expected = alone(models[0], test_set, batch)
    assert found(models, test_set, batch, 0) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": {"fisher": {"labels": "empirical"}}}, "method 'fisher' goes by the numbers of the data's labels"),
        ({"matchings": {"own": recipe("learned", target="labels")}}, "matching 'own' goes by the numbers"),
        ({"ensemble": True}, "an ensemble needs one head for all models"),
    ],
)
def test_what_goes_by_numbers_of_labels_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Data number labels as their own model does, not as joined heads do."""
    models = {"a": classifier(0, ["x", "y"]), "b": classifier(1, ["z", "x"])}
    with pytest.raises(InputError, match=sentence):
        Fuser(models, FusionPlan(**{"methods": {"simple": {}}, "heads": "union", **changes}))


def test_several_labels_of_each_model_are_not_looked_at() -> None:
    """Neither by the Fisher information of what models say, nor by learned matching."""
    kind = {"problem_type": "multi_label_classification"}
    models = {"a": classifier(0, ["x", "y"], **kind), "b": classifier(1, ["z", "x"], **kind)}
    batches = [images(torch.randint(2, (6, 2), generator=generator(seed)).float()) for seed in range(2)]
    bare = [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]
    learned = recipe("learned", steps=2)
    plan = FusionPlan(methods={"fisher": {}}, matchings={"matched": learned}, heads="union")
    made = []
    for given in (batches, bare):
        inputs = Inputs.from_batches([[batch] for batch in given], 2)
        kept = run(Fuser(models, plan, inputs).fuse()).kept
        assert kept is not None
        made.append(kept.model.state_dict())
    torch.testing.assert_close(dict(made[0]), dict(made[1]))


def test_rows_of_labels_follow_the_position_between_two_models() -> None:
    """At one end of the arc a label that both know is that model's, as the body is."""
    models = {"a": classifier(0, ["x", "y"]), "b": classifier(1, ["y", "z"])}
    merge = run(Fuser(models, FusionPlan(methods={"slerp": {"t": 0.999}}, heads="union")).fuse()).kept
    assert merge is not None
    names = list(merge.model.config.id2label.values())  # type: ignore[union-attr, operator]
    found, own = merge.model.state_dict(), models["b"].state_dict()
    for name, row in (("classifier.weight", names.index("y")), ("vit.layernorm.weight", slice(None))):
        wanted = own[name][0] if name.startswith("classifier") else own[name]
        torch.testing.assert_close(found[name][row], wanted, rtol=0, atol=0.01 * float(wanted.norm()))


def test_an_end_model_answers_in_the_type_of_its_candidate() -> None:
    """Also where that was converted after it answered."""
    models = [classifier(seed, names) for seed, names in enumerate((["x", "y"], ["y", "z"]))]
    heads, test_set = UnionHeads(dict(zip("ab", models, strict=True))), TestSet("data", class_names=("x", "y"))
    end = Candidate(("a",), END_MODEL, NO_MATCHING, heads.models["a"])
    for dtype in (torch.float32, torch.float64):
        end.model.to(dtype)
        model = heads.scored(end, test_set)
        assert model is not None
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
