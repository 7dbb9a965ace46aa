"""Options say what is matched, and refuse what does not exist in a sentence that names it."""

import re

import pytest

from fusionlab.errors import InputError
from fusionlab.matching.options import MatchOptions, given, parse_layers
from fusionlab.matching.presets import PRESETS, preset
from fusionlab.symmetry import blueprint
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.models import random_model

BERT = blueprint(random_model("bert-sequence"))
BARE = blueprint(random_model("vit-model"))


def six_layers() -> Blueprint:
    b = BlueprintBuilder("six")
    b.space("residual", Permutation(4), role="residual")
    for layer in range(6):
        b.space(f"layers.{layer}.ffn", Permutation(4), role="ffn", layer=layer)
    return b.build()


@pytest.mark.parametrize(
    ("option", "said", "meant"),
    [
        ("spaces", "heads, ffn", ("heads", "ffn")),
        ("gauge", ["folded", "biases"], ("folded", "biases")),
        ("gauge", "none", ()),
        ("layers", 3, "3"),
        ("layers", [0, 2], "0,2"),
        ("layers", "first:2", "first:2"),
        ("rescale", False, "off"),
        ("rescale", "joint", "joint"),
        ("sweeps", 3, 3),
        ("start", "as-is", "as-is"),
    ],
)
def test_options_may_be_said_in_many_ways(option, said, meant):
    """As YAML, the command line and Python have them; what is None is not given."""
    assert given({option: said, "relative": None}) == {option: meant}
    assert getattr(preset("weights", **{option: said}), option) == meant


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("all", {0, 1, 2, 3, 4, 5}),
        ("3", {3}),
        ("0,2,5", {0, 2, 5}),
        (" 1 , 3 ", {1, 3}),
        ("1-3", {1, 2, 3}),
        ("2-2", {2}),
        ("0-1,4-5", {0, 1, 4, 5}),
        ("first:1", {0}),
        ("first:2", {0, 1}),
        ("last:2", {4, 5}),
        ("last:6", {0, 1, 2, 3, 4, 5}),
        ("first:1,last:1,2-3", {0, 2, 3, 5}),
    ],
)
def test_layers_are_single_lists_ranges_and_ends(text, chosen):
    assert parse_layers(text, six_layers()) == chosen


@pytest.mark.parametrize("text", ["6", "4-6", "3-2", "0,7", "0-999999999999"])
def test_layers_outside_the_model_are_refused_with_its_range(text):
    with pytest.raises(InputError, match=f"^layers asks for '{text.split(',')[-1]}'; expected layers from 0 to 5$"):
        parse_layers(text, six_layers())


@pytest.mark.parametrize(
    "text", ["", "some", "-1", "1-", "1,,2", "first:0", "last:7", "first:", "middle:2", "1.5", "²"]
)
def test_layers_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError, match=r"^layers contains '.*'; expected all, a layer such as 3"):
        parse_layers(text, six_layers())


def names(options: MatchOptions, description: Blueprint = BERT) -> list[str]:
    return [space.name for space in options.select(description)]


# The units of a pooler, and their signs, are in no layer.
POOLER = ("ffn", "ffn.signs")


def test_spaces_are_selected_by_role_from_coarse_to_fine():
    first = ["layers.0.qk", "layers.0.vo"]
    assert names(MatchOptions(spaces=("attention",), layers="0")) == first
    assert names(MatchOptions(spaces=("attention.vo",), layers="0")) == ["layers.0.vo"]
    assert names(MatchOptions(spaces=("ffn", "attention"), layers="0")) == [*first, "layers.0.ffn", *POOLER]
    assert names(MatchOptions(spaces=("all",))) == list(BERT.spaces)
    assert names(MatchOptions(spaces=())) == []


def test_layers_select_but_leave_spaces_of_no_layer_alone():
    assert names(MatchOptions(spaces=("residual", "ffn"), layers="1")) == ["residual", "layers.1.ffn", *POOLER]


def test_presets_are_as_documented():
    layer = ["layers.1.qk", "layers.1.vo", "layers.1.ffn"]
    assert names(preset("none")) == []
    assert names(preset("paper", layers="1")) == [*layer, *POOLER]
    assert preset("paper").rescale == "sequential"
    assert preset("paper").gauge == ()
    assert names(preset("weights")) == list(BERT.spaces)
    assert names(preset("weights"), BARE) == list(BARE.spaces)
    assert preset("paper").relative == 0
    assert preset("weights").gauge == ("folded", "biases", "balanced")
    assert (preset("weights").relative, preset("weights").start) == (0.5, "annealed")


def test_preset_takes_changes_and_keeps_what_is_none():
    changed = preset("paper", rescale="joint", layers=None, sweeps=3)
    assert (changed.rescale, changed.layers, changed.sweeps) == ("joint", "all", 3)
    assert PRESETS["paper"].rescale == "sequential"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: preset("papers"), "matching preset 'papers' does not exist; expected one of none, paper, weights"),
        (lambda: preset("paper", rescale="both"), "rescale is 'both'; expected one of off, sequential, joint"),
        (
            lambda: MatchOptions(gauge=("fold",)),
            "gauge names 'fold'; expected none, or some of folded, biases, balanced",
        ),
        (lambda: MatchOptions(sweeps=0), "sweeps is 0; expected at least 1"),
        (lambda: MatchOptions(temperatures=0), "temperatures is 0; expected at least 1"),
        (lambda: MatchOptions(relative=1.5), "relative is 1.5; expected a number from 0 to 1"),
        (
            lambda: MatchOptions(start="warm"),
            "start is 'warm'; expected one of activations, annealed, as-is, auto, gradients, known",
        ),
        (lambda: MatchOptions(towards="median"), "towards is 'median'; expected one of anchor, mean"),
        (lambda: MatchOptions(spaces=("attentoin",)).select(BERT), "spaces names 'attentoin'; expected some of"),
        (lambda: MatchOptions(spaces=("residual",)).select(BARE), "'residual'; expected some of"),
        (lambda: MatchOptions(spaces=("attention.q",)).select(BERT), "'attention.q'; expected some of"),
        (lambda: MatchOptions(layers="9").select(BERT), "layers asks for '9'; expected layers from 0 to 1"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def test_unknown_role_is_answered_with_the_architecture_and_its_roles():
    with pytest.raises(InputError) as caught:
        MatchOptions(spaces=("mlp",)).select(BERT)
    for known in ("residual", "heads", "attention", "attention.qk", "attention.vo", "ffn", "bert model"):
        assert known in str(caught.value)
