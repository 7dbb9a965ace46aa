"""Blueprints describe a model to the letter, and refuse one that they do not describe."""

import re

import pytest
import torch

from fusionlab.symmetry import SymmetryError, blueprint
from fusionlab.symmetry.blueprint import BIASES, FOLDED
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation
from fusionlab.symmetry.inputs import Input

from .blueprints import nested_blueprint
from .models import CASES, generator, random_model
from .written import written


@pytest.fixture(scope="module")
def bert() -> torch.nn.Module:
    return random_model("bert-sequence")


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def test_missing_parameter_is_refused_by_name(bert):
    state = {name: tensor for name, tensor in bert.state_dict().items() if name != QUERY}
    with pytest.raises(SymmetryError, match=f"^a file lacks the parameter '{re.escape(QUERY)}' that bert models have$"):
        blueprint(bert).check(state, "a file")


def test_extra_parameter_is_refused_by_name(bert):
    state = bert.state_dict() | {"adapter.weight": torch.zeros(2, 2)}
    with pytest.raises(SymmetryError, match=r"^the model has the parameter 'adapter\.weight', which .* bert"):
        blueprint(bert).check(state)


@pytest.mark.parametrize(
    ("shape", "told"), [((24, 23), "24 x 23"), ((23, 24), "23 x 24"), ((24,), "24"), ((), "a scalar")]
)
def test_misshapen_parameter_is_refused_by_name_and_both_shapes(bert, shape, told):
    state = bert.state_dict() | {QUERY: torch.zeros(shape)}
    with pytest.raises(SymmetryError, match=f"'{re.escape(QUERY)}' of shape {told} where its config says 24 x 24"):
        blueprint(bert).check(state)


def test_lengths_that_no_space_fixes_are_free(bert):
    """Another vocabulary is another model, but the symmetry is the same."""
    name = "bert.embeddings.word_embeddings.weight"
    known = written(bert)
    known.check(bert.state_dict() | {name: torch.zeros(99, 24)})
    with pytest.raises(SymmetryError, match="says any x 24"):
        known.check(bert.state_dict() | {name: torch.zeros(31, 25)})


@pytest.mark.parametrize("name", CASES)
def test_dimension_is_two_general_linear_groups_for_each_head(name):
    """2 layers x 3 heads x (query-key and value-output) x 8 x 8 = 768; permutations add none."""
    description = blueprint(random_model(name))
    assert description.dimension == 768
    assert description.spaces["layers.1.qk"].dimension == 192
    assert description.spaces["layers.0.ffn"].dimension == 0


def test_spaces_of_a_known_model(bert):
    """What there is, in an order in which a space that indexes others stands before them."""
    description = blueprint(bert)
    assert [(s.name, str(s.group), s.role, s.layer, s.copies) for s in description.spaces.values()][:5] == [
        ("residual", "S(24)", "residual", None, ()),
        ("layers.0.heads", "S(3)", "heads", 0, ()),
        ("layers.0.qk", "GL(8)", "attention.qk", 0, (3,)),
        ("layers.0.vo", "GL(8)", "attention.vo", 0, (3,)),
        ("layers.0.ffn", "S(40)", "ffn", 0, ()),
    ]
    assert list(description.spaces)[9:] == ["ffn", "ffn.signs"]
    assert description.roles() == ("residual", "heads", "attention.qk", "attention.vo", "ffn")


def test_touching_names_the_parameters_of_a_space(bert):
    at = "bert.encoder.layer.0"
    assert tuple(blueprint(bert).touching(["layers.0.ffn"])) == (
        f"{at}.intermediate.dense.weight",
        f"{at}.intermediate.dense.bias",
        f"{at}.output.dense.weight",
    )
    assert blueprint(bert).touching([]) == {}


def test_fingerprint_tells_symmetries_apart_and_nothing_else():
    """Two seeds agree; another class, another width, another wiring do not."""
    prints = {name: blueprint(random_model(name)).fingerprint for name in CASES}
    assert prints["bert-sequence"] == blueprint(random_model("bert-sequence", seed=1)).fingerprint
    # Where a classifier pools makes no difference to names or axes; all other rows of the table differ.
    assert len(set(prints.values())) == len(CASES) - (prints["timm-plain"] == prints["timm-average-pool"])
    assert nested_blueprint().fingerprint == nested_blueprint().fingerprint


def test_only_permutations_may_index_copies():
    b = BlueprintBuilder("wrong")
    b.space("rotated", Invertible(3), role="residual")
    with pytest.raises(TypeError, match="rotated indexes inner but is not a space of permutations"):
        b.space("inner", Permutation(2), role="heads", index=("rotated",))


def test_a_role_that_does_not_exist_is_refused():
    """A slip of the pen would otherwise leave out what holds for queries and keys."""
    with pytest.raises(ValueError, match=r"role is 'attention\.kq'; expected one of residual, .*attention\.qk"):
        BlueprintBuilder("wrong").space("qk", Invertible(3), role="attention.kq")


def test_spaces_are_described_as_in_files_that_exist():
    """Fingerprints are digests of these words, and saved alignments carry them."""
    b = BlueprintBuilder("some")
    heads = b.space("heads", Permutation(2), role="heads", layer=3)
    b.space("qk", Invertible(3), role="attention.qk", layer=3, index=(heads.space,))
    assert repr(b.build().spaces["qk"]) == (
        "Space(name='qk', group=Invertible(size=3), role='attention.qk', layer=3, index=('heads',), copies=(2,))"
    )


def test_random_inputs_have_the_shape_and_range_they_say():
    pixels = Input("pixel_values", (3, 4, 5)).random(2, generator(0))
    assert (pixels.shape, pixels.dtype) == ((2, 3, 4, 5), torch.float64)
    ids = Input("input_ids", (50,), vocabulary=7).random(20, generator(0))
    assert (ids.shape, ids.dtype) == ((20, 50), torch.int64)
    assert set(ids.flatten().tolist()) == set(range(7))


def test_random_ids_may_end_with_one_token_that_is_nowhere_else():
    ids = Input("input_ids", (50,), vocabulary=7, last=6).random(20, generator(0))
    assert (ids[:, -1] == 6).all()
    assert set(ids[:, :-1].flatten().tolist()) == set(range(6))


def test_a_gauge_says_which_blueprint_holds():
    """By any names, those of gauges that change no blueprint among them; the blueprint says them back."""
    description = blueprint(random_model("vit-classifier"))
    assert description.gauge == ()
    assert description.in_gauge(()) is description
    assert description.in_gauge(["balanced"]) is description
    assert description.in_gauge(["balanced", FOLDED]) is description.after_folding
    for names in ((BIASES,), (FOLDED, BIASES)):
        chosen = description.in_gauge(names)
        assert chosen.gauge == names
        assert description.in_gauge(chosen.gauge).fingerprint == chosen.fingerprint != description.fingerprint


def test_a_model_with_nothing_to_fold_is_folded_already(bert):
    description = blueprint(bert)
    assert description.in_gauge([FOLDED]) is description
