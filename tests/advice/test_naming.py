"""Parameters of two models that are the same one, under one name or two."""

from fusionlab.advice.naming import of_one_naming, same_names
from fusionlab.advice.tensors import module_weights, state_weights
from tests.commands.small import vit


def test_names_with_and_without_a_prefix() -> None:
    head, body = {"m.a.w": 0, "m.b.w": 0, "head.w": 0}, {"a.w": 0, "b.w": 0}
    assert same_names(head, body) == {"m.a.w": "a.w", "m.b.w": "b.w"}
    assert same_names(body, head) == {"a.w": "m.a.w", "b.w": "m.b.w"}
    assert same_names(head, head) == {name: name for name in head}
    assert same_names({}, body) == {}


def test_names_of_one_class_stay() -> None:
    models = [module_weights(vit(0), "one"), module_weights(vit(0).vit, "two")]
    assert of_one_naming(models) == models


def test_models_of_no_file_keep_their_names() -> None:
    models = [module_weights(vit(0), "one"), state_weights({"a": vit(0).classifier.weight}, "two", None, {})]
    assert of_one_naming(models) == models
