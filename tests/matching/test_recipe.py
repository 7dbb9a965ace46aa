"""Recipes: presets with changes, and alignments of real models by each of them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.inputs import Inputs
from fusionlab.matching.align import align_states, gauged
from fusionlab.matching.align_models import align_models
from fusionlab.matching.learned import refined
from fusionlab.matching.permutations import PermutationOptions
from fusionlab.matching.presets import PRESETS
from fusionlab.matching.recipe import RECIPES, recipe
from fusionlab.matching.weights import rescaled, squared_distance
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from tests.commands.small import vit


def inputs(count: int = 24) -> Inputs:
    batches: list[dict[str, Tensor]] = [
        {"pixel_values": torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))}
    ]
    return Inputs.from_batches(batches, 2)


def test_presets_without_inputs_are_the_options() -> None:
    """none, paper and weights run nothing; activations and learned start elsewhere."""
    for name, options in PRESETS.items():
        assert recipe(name).options == options
        assert not recipe(name).needs_inputs
    for name, start in (("activations", "activations"), ("learned", "auto")):
        assert recipe(name).needs_inputs
        assert recipe(name).options == replace(PRESETS["weights"], start=start)


def test_changes_go_where_they_belong() -> None:
    """Options of the matching to the matching, of the refinement to the refinement; None changes nothing."""
    changed = recipe("learned", steps=7, layers="first:1", target=None, sweeps=3)
    assert changed.refine is not None
    assert (changed.refine.steps, changed.refine.target) == (7, "outputs")
    assert (changed.options.layers, changed.options.sweeps) == ("first:1", 3)
    assert str(changed).startswith(
        "by weights: spaces all; layers first:1; gauge folded, biases, balanced; rescale off"
    )
    assert "; then refined: steps 7; optimizer muon; learning rate by default; " in str(changed)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("learnt", {}, "'learnt' does not exist; expected one of none, paper, weights"),
        ("atuo", {}, "'atuo' does not exist; .* or auto in fuse, did you mean auto"),
        ("auto", {}, "'auto' does not exist; .* or auto in fuse$"),
        ("weights", {"steps": 3}, "has no option 'steps' .an option of learned.; expected some of"),
        ("learned", {"step": 3}, "has no option 'step'; expected some of"),
        ("learned", {"steps": 0}, "steps is 0"),
        ("paper", {"rescale": "x"}, "rescale is 'x'"),
        (
            "activations",
            {"towards": "mean"},
            "start 'activations' does not work towards the mean",
        ),
        *(
            (name, {field: value}, f"matching by {name} has no option '{field}'; expected some of")
            for name in ("git-rebasin", "ot-fusion")
            for field, value in {
                "towards": "mean",
                "relative": 0.5,
                "start": "annealed",
                "rescale": "joint",
                "temperatures": 5,
            }.items()
        ),
    ],
)
def test_what_does_not_exist(name: str, changes: dict[str, object], message: str) -> None:
    """Refused with what was expected."""
    with pytest.raises(InputError, match=message):
        recipe(name, **changes)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_preserves_every_function(name: str) -> None:
    """Two models from different seeds; in float64, each twin computes what its end model does."""
    models = [vit(0), vit(1)]
    chosen = recipe(name, steps=3) if name == "learned" else recipe(name)
    found = run(align_models(models, blueprint(models[0]), chosen, 1, inputs())).alignments
    for model, alignment in zip(models, found, strict=True):
        assert check_preservation(model, alignment.apply(model), alignment).exact < 1e-8


@pytest.mark.parametrize("name", ["paper", "weights", "git-rebasin", "ot-fusion"])
def test_twins_are_closer_than_the_models(name: str) -> None:
    """In the distance that is minimised, both in the recipe's gauge; where it says so, by permutations alone."""
    models = [vit(seed).double() for seed in (0, 1)]
    states = [model.state_dict() for model in models]
    chosen = recipe(name)
    found = run(align_models(models, blueprint(models[0]), chosen, 1)).alignments
    _, gauges = gauged(states, blueprint(models[0]), chosen.options)

    def distance(alignments: list[Alignment]) -> float:
        twins = [alignment.apply(state) for alignment, state in zip(alignments, states, strict=True)]
        return squared_distance(*rescaled(twins, getattr(chosen.options, "relative", 0.0)))

    assert distance(found) < 0.99 * distance(gauges)
    if isinstance(chosen.options, PermutationOptions):
        for space, element in found[0].elements.items():
            if element.is_floating_point():
                assert set(element.unique().tolist()) == {0.0, 1.0}, space
                assert torch.equal(element.sum(-1), torch.ones_like(element[..., 0])), space
                assert torch.equal(element.sum(-2), torch.ones_like(element[..., 0])), space
            else:
                assert element.sort(-1).values.unique().tolist() == list(range(element.shape[-1])), space


@pytest.mark.parametrize("name", ["weights", "activations"])
def test_a_twin_is_found_again(name: str) -> None:
    """A model in a random basis comes back to where it was: its twin and the original's are the same model."""
    original = vit(0).double()
    described = blueprint(original)
    moved = Alignment.random(described, torch.Generator().manual_seed(3)).apply(original)
    found = run(align_models([moved, original], described, recipe(name), 1, inputs())).alignments
    twins = [alignment.apply(model).state_dict() for alignment, model in zip(found, (moved, original), strict=True)]
    for parameter, tensor in twins[1].items():
        assert (twins[0][parameter] - tensor).abs().max() < 1e-6, parameter


def test_refinement_learns_on_the_inputs_that_there_are() -> None:
    """Shared ones are given as they are, those of each model apart, so that it teaches alone on its own."""
    models = [vit(0), vit(1)]
    chosen = recipe("learned", steps=4)
    assert chosen.refine is not None
    described = blueprint(models[0])
    start = align_states([model.state_dict() for model in models], described, chosen.options)
    shared = inputs()
    own = Inputs.from_batches([shared.shared, [{"pixel_values": -b["pixel_values"]} for b in shared.shared]], 2)
    found: list[dict[str, Tensor]] = []
    for given, batches in ((shared, shared.shared), (own, list(own.own))):
        spaces = chosen.options.select(start[0].blueprint)
        expected = run(refined(models, start[0].blueprint, start, batches, chosen.refine, spaces=spaces))
        found.append(run(align_models(models, described, chosen, inputs=given)).alignments[1].elements)
        for name, element in expected[1].elements.items():
            torch.testing.assert_close(found[-1][name], element, rtol=0, atol=1e-6)
    moved = [float((found[0][n] - x).abs().max()) for n, x in found[1].items() if x.is_floating_point()]
    assert max(moved) > 1e-3


def test_inputs_that_are_missing() -> None:
    """Asked for, in one sentence."""
    models = [vit(0), vit(1)]
    with pytest.raises(InputError, match="no inputs were given; expected data or probes"):
        run(align_models(models, blueprint(models[0]), recipe("learned"), 0))


def test_each_published_method_of_permutations_has_its_own_objective() -> None:
    """OT fusion: Euclidean distance (Singh and Jaggi); git re-basin: inner products (Ainsworth et al.)."""
    found = [recipe(name).options for name in ("ot-fusion", "git-rebasin")]
    assert [getattr(options, "objective", None) for options in found] == ["euclidean", "inner"]
