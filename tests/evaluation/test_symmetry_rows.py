"""Rows of a table of spaces: nothing is lost in putting equal ones together, and words say what the numbers say."""

from collections.abc import Mapping

import pytest
import transformers

from fusionlab.evaluation.drawing import png
from fusionlab.evaluation.symmetry_figure import symmetry_figure
from fusionlab.evaluation.symmetry_rows import (
    Kind,
    counted,
    found_alike,
    kinds_of,
    legend_of,
    name_of_kind,
    ranges,
    words_of,
)
from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.axes import Along
from fusionlab.symmetry.blueprint import Norm
from fusionlab.symmetry.evidence import Outcome, Trial
from fusionlab.symmetry.groups import Group, Invertible, Orthogonal, Permutation, Scale
from fusionlab.symmetry.roles import Role
from tests.symmetry.written import written


def described(trials: Mapping[str, tuple[Trial, ...]], group: Group, folded: Group | None = None) -> Blueprint:
    """Two layers with a space each, behind one norm each."""
    names = ("layers.0.ffn", "layers.1.ffn")

    def one(group: Group) -> Blueprint:
        spaces = {name: Space(name, group, Role.UNITS, layer) for layer, name in enumerate(names)}
        gains = {f"{name}.norm": (Along(name, group.size),) for name in names}
        return Blueprint("two", spaces, gains, norms=tuple(Norm(f"{name}.norm", None) for name in names), trials=trials)

    found = one(group)
    return found if folded is None else Blueprint(**{**vars(found), "after_folding": one(folded)})


def only(blueprint: Blueprint) -> Kind:
    (kind,) = kinds_of(blueprint)
    return kind


TAKEN, CHANGED, UNSEEN, UNTRIED = Outcome.TAKEN, Outcome.CHANGED, Outcome.UNSEEN, Outcome.UNTRIED


def test_words_say_what_was_tried_and_the_telling_number_of_several_spaces() -> None:
    """The largest change of those that are none, the smallest of those that are one; norms are counted by space."""
    rotations = [Trial(Orthogonal(4), CHANGED, change) for change in (0.5, 0.02)]
    permutations = [Trial(Permutation(4), TAKEN, change, folded=True) for change in (1e-16, 3e-15)]
    trials = dict(zip(("layers.0.ffn", "layers.1.ffn"), zip(rotations, permutations, strict=True), strict=True))
    found = described(trials, Permutation(4))
    assert words_of([only(found)], found) == (
        "every invertible matrix: not proposed by the graph; rotations and reflections: outputs change by 2e-02; "
        "permutations, after folding the gain of 1 norm: outputs equal to 3e-15"
    )
    assert legend_of(found) == {"O": "rotations and reflections", "S": "permutations"}


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        (Trial(Invertible(4), CHANGED), "every invertible matrix: outputs change or cannot be computed"),
        (
            Trial(Invertible(4), UNSEEN, 0.0),
            "every invertible matrix: outputs equal, but with a part of it alone too",
        ),
        (Trial(Invertible(4), UNTRIED), "every invertible matrix: no axes to act on"),
        (Trial(Permutation(4), TAKEN, 0.0), "every invertible matrix, rotations and reflections: not proposed by the"),
        (Trial(Scale(1, signed=True), TAKEN, 1e-15), "a factor of either sign: outputs equal to 1e-15"),
    ],
)
def test_every_outcome_has_words(trial: Trial, told: str) -> None:
    trials = {"layers.0.ffn": (trial,), "layers.1.ffn": (trial,)}
    found = described(trials, trial.group)
    assert words_of([only(found)], found).startswith(told)


def test_groups_that_went_the_same_way_are_told_together() -> None:
    trials = (Trial(Invertible(4), UNTRIED), Trial(Orthogonal(4), UNTRIED), Trial(Permutation(4), TAKEN, 0.0))
    found = described(dict.fromkeys(("layers.0.ffn", "layers.1.ffn"), trials), Permutation(4))
    assert words_of([only(found)], found) == (
        "every invertible matrix, rotations and reflections: no axes to act on; permutations: outputs equal to 0e+00"
    )
    assert [len(kinds) for kinds in found_alike(found)] == [1]


def test_a_space_of_its_own_has_words() -> None:
    """One layer alone, where nothing that was tried has a number."""
    space = Space("pooler.ffn", Permutation(4), Role.UNITS)
    trials = (Trial(Invertible(4), UNTRIED), Trial(Orthogonal(4), UNTRIED, folded=True))
    found = Blueprint("one", {space.name: space}, {"w": (Along(space.name, 4),)}, trials={space.name: trials})
    assert words_of([only(found)], found).startswith(
        "every invertible matrix: no axes to act on; rotations and reflections"
    )


def test_untouched_names_are_counted() -> None:
    assert counted(["a.0.b", "c", "a.1.b"]) == "a.*.b (2), c"
    assert counted([]) == "none"


def test_what_was_never_tried_has_no_words() -> None:
    found = described({}, Permutation(4), Orthogonal(4))
    assert words_of([only(found)], found) == ""
    assert (str(only(found).folded), only(found).norms, only(found).layers) == ("O(4)", 1, "0-1")


def test_spaces_that_were_found_otherwise_are_rows_of_their_own() -> None:
    trials = {
        "layers.0.ffn": (Trial(Permutation(4), TAKEN, 0.0),),
        "layers.1.ffn": (Trial(Orthogonal(4), CHANGED, 1.0), Trial(Permutation(4), TAKEN, 0.0)),
    }
    assert [kind.layers for kind in kinds_of(described(trials, Permutation(4)))] == ["0", "1"]


def test_ranges() -> None:
    assert ranges([3, None, 0, 1, 5, 1]) == "0-1, 3, 5"
    assert ranges([None]) == "-"


def test_numbers_in_names_are_stars() -> None:
    assert name_of_kind("layers.12.qk") == "layers.*.qk"
    assert name_of_kind("a.0.b.7") == "a.*.b.*"
    assert name_of_kind("conv2d.x3") == "conv2d.x3"


def swin() -> Blueprint:
    config = transformers.SwinConfig(image_size=32, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 4])
    return written(transformers.SwinForImageClassification(config))


def test_every_space_is_in_one_row() -> None:
    """Of a model whose layers differ: names, dimensions and layers are those of the blueprint."""
    found = swin()
    kinds = kinds_of(found)
    assert sorted(space.name for kind in kinds for space in kind.spaces) == sorted(found.spaces)
    assert sum(kind.dimension for kind in kinds) == found.dimension
    assert {kind.layers for kind in kinds if kind.name == "layers.*.heads"} == {"0-1", "2"}


def test_the_picture_names_all_that_acts() -> None:
    """A bar for each stretch of equal layers, rows for what folding frees, a legend of every group in it."""
    found = swin()
    figure = symmetry_figure(found, "a model")
    (panel,) = figure.axes
    rows = [label.get_text().replace("\n", "") for label in panel.get_yticklabels()]
    assert {"stages.*.residual", "stages.*.residual, gains folded", "layers.*.qk"} <= set(rows)
    texts = [text.get_text().replace("\n", " ") for text in panel.texts]
    assert "GL(4) for each of 2 heads" in texts
    assert sum(text.startswith("S(2)") for text in texts) == 1
    after = found.after_folding
    assert after is not None
    shown = " ".join(texts + rows)
    for space in (*found.spaces.values(), *after.spaces.values()):
        assert str(space.group) in shown, space
    (legend,) = figure.legends
    labels = {text.get_text().split("(n)")[0] for text in legend.get_texts()}
    assert labels == {space.group.label for space in (*found.spaces.values(), *after.spaces.values())}
    assert panel.get_title(loc="left").endswith("Written in tests/symmetry/written/swin.py.")
    assert len(panel.patches) == len(panel.texts)
    assert png(figure)[:8] == b"\x89PNG\r\n\x1a\n"


def test_what_does_not_fit_into_a_narrow_bar_stands_under_the_name() -> None:
    """Forty layers of two kinds in turn."""
    spaces = {f"layers.{n}.ffn": Space(f"layers.{n}.ffn", Permutation(14336 + n % 2), Role.UNITS, n) for n in range(40)}
    figure = symmetry_figure(Blueprint("turns", spaces, {}), "a model")
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["layers.*.ffn\nS(14336), S(14337)"]
    assert len(panel.patches) == 40
    assert {text.get_text() for text in panel.texts} == {""}


def test_layers_without_a_space_part_the_bars() -> None:
    """A hybrid model, whose attention is in some layers only."""
    spaces = {f"layers.{n}.qk": Space(f"layers.{n}.qk", Invertible(8), Role.QUERY_KEY, n) for n in (0, 1, 4)}
    (panel,) = symmetry_figure(Blueprint("hybrid", spaces, {}), "a model").axes
    assert [(box.get_x(), box.get_width()) for box in panel.patches] == [(0, 2), (4, 1)]


def test_a_model_without_spaces_has_a_picture_too() -> None:
    assert png(symmetry_figure(Blueprint("none", {}, {}), "nothing"))
