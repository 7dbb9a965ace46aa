"""What a grown model's function does not depend on is learned together with the alignments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fusionlab.evaluation.preservation import check_preservation
from fusionlab.growing import grown
from fusionlab.matching.filling import Filling
from fusionlab.matching.twins import Twins
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.stacks import apart
from fusionlab.symmetry.unseen import unseen_entries
from tests.growing.families import gpt2, llama, vit
from tests.matching.refining import excess, folded, inputs, refined
from tests.parts import one_in
from tests.symmetry.models import generator, randomize

PAIRS: dict[str, tuple[Any, dict[str, int]]] = {
    "vit": (vit, {"hidden_size": 20, "intermediate_size": 31, "num_hidden_layers": 3}),
    "llama": (lambda **sizes: llama(head_dim=4, **sizes), {"hidden_size": 24, "intermediate_size": 31}),
    "gpt2": (gpt2, {"n_embd": 24, "n_inner": 60}),
}


def pair(name: str) -> list[nn.Module]:
    """A small model grown to the size of a large one and filled from it, and the large one."""
    build, larger = PAIRS[name]
    large = randomize(build(**larger), 1)
    return [grown(randomize(build(), 0), large, fill=True).model, large]


@pytest.mark.parametrize(("name", "anchor"), one_in(2, [("vit", 1), ("vit", 0), ("llama", 0), ("gpt2", 1)]))
def test_twins_are_what_their_alignments_make_of_the_models(name: str, anchor: int) -> None:
    """Wherever the coordinates are, of the model that stays too."""
    models = [model.double() for model in pair(name)]
    start = Alignment.random(folded(models[0]), generator(3))
    twins = Twins(models, [start, Alignment.identity(start.blueprint)], anchor, unseen=True).double()
    twins.start_from(twins.start)
    for seed, parameter in enumerate(twins.parameters()):
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator(seed), dtype=torch.float64)
    found = twins.alignments()
    assert found[0].filling
    assert not found[1].filling
    for model, state, alignment in zip(models, twins.states(), found, strict=True):
        expected = alignment.apply(model).state_dict()
        for entry, tensor in apart(state, twins.blueprint.stacks).items():
            torch.testing.assert_close(tensor.detach(), expected[entry], rtol=0, atol=1e-10)
        check_preservation(model, alignment.apply(model), alignment)


def test_mixed_precision_rounds_no_twin() -> None:
    """Twins are what their alignments make of the models, also where forward passes are in bfloat16."""
    models = [model.float() for model in pair("vit")]
    start = Alignment.random(folded(models[0]), generator(3))
    twins = Twins(models, [start, Alignment.identity(start.blueprint)], unseen=True)
    expected = twins.states()[0]
    with torch.autocast("cpu", torch.bfloat16):
        for name, tensor in twins.states()[0].items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("anchor", [0, 1])
def test_what_is_unseen_is_learned_and_functions_stay(anchor: int) -> None:
    models = pair("vit")
    data = inputs(models[0], 4, batch=4)
    start = [Alignment.identity(folded(models[0]))] * 2
    how = {"steps": 15, "batch_size": 8, "mixtures": 0, "anchor": anchor}
    found = refined(models, data, **how)
    entries, filling = unseen_entries(models[0]), found[0].filling
    assert filling.keys() == entries.keys()
    state = start[0].apply(models[0].state_dict())
    for name, where in entries.items():
        assert torch.equal(~filling[name].isnan(), where)
        assert not torch.allclose(filling[name][where], state[name][where])
    for model, alignment in zip(models, found, strict=True):
        assert check_preservation(model, alignment.apply(model), alignment).stored < 1e-5
    assert excess(models, found, data) < 0.9 * excess(models, start, data)
    assert not refined(models, data, unseen=False, **{**how, "steps": 1})[0].filling


def test_a_step_is_as_long_as_the_parameter_is_large() -> None:
    """A coordinate of one adds the root mean square of all the parameter's numbers, to its own entry alone."""
    model = pair("llama")[0]
    filling = Filling(model, folded(model), set(model.state_dict()))
    before = {name: tensor.detach() for name, tensor in filling.tensors().items()}
    for coordinates in filling.coordinates:
        coordinates.data.fill_(1)
    for name, tensor in filling.tensors().items():
        added, where = tensor.detach() - before[name], unseen_entries(model)[name]
        size = before[name].square().mean().sqrt()
        torch.testing.assert_close(added, size * where)
    other = pair("llama")[1]
    assert Filling(other, folded(other), set(other.state_dict())).names == ()


def test_a_head_of_other_labels_has_no_such_entries() -> None:
    """What was noted of a parameter of another shape is another parameter's."""
    model = pair("vit")[0]
    assert "classifier.weight" in unseen_entries(model)
    model.classifier = nn.Linear(20, 9)  # type: ignore[assignment]
    found = Filling(model, folded(model), set(model.state_dict())).names
    assert found
    assert "classifier.weight" not in found
