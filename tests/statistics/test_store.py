"""The store gathers what is missing on the right inputs, moves what can be moved, and does neither twice."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.inputs import Inputs
from fusionlab.stages import run
from fusionlab.statistics import Activations, Fisher, Grams, basis_of, store
from fusionlab.statistics.gather import gather, gathered
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment, blueprint
from tests.statistics.passes import Batch, batched, examples_for, model_of, trainer

KINDS = ("gram", "fisher", "activations")
Pass = tuple[str, str, Any]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Pass]:
    """Every pass that a store makes: of which model, of which kind, over what."""
    found: list[Pass] = []

    def noted(model: nn.Module, batches: Any, kinds: list[str], **options: Any) -> Any:
        found.extend((basis_of(model.state_dict()), kind, batches) for kind in kinds)
        return gathered(model, batches, kinds, **options)

    monkeypatch.setattr(store, "gathered", noted)
    return found


def inputs_of(model: nn.Module) -> Inputs:
    own = [batched(examples_for(model, seed=seed), 2) for seed in (3, 4)]
    return Inputs(own=tuple(own), shared=[*own[0], *own[1]])


def twin_of(model: nn.Module, folded: bool = False) -> tuple[nn.Module, Alignment]:
    alignment = Alignment.random(blueprint(model, folded=folded), torch.Generator().manual_seed(2))
    return alignment.apply(model), alignment


def assert_close(found: dict[str, Tensor] | Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name].double(), tensor.double(), rtol=0, atol=1e-7 * float(tensor.abs().max()), msg=name
        )


def test_inputs_of_each_kind(passes: list[Pass]) -> None:
    """Gram and Fisher see the model's own inputs, activations those that all models share; each in one pass."""
    model = model_of("bert-sequence")
    inputs = inputs_of(model)
    kept = StatisticsStore(inputs, settings={"samples": 5, "labels": None})
    for _ in range(2):
        found = run(kept.of(1, model, KINDS), trainer)
        assert set(found) == set(KINDS)
    basis = basis_of(model.state_dict())
    assert [(b, kind) for b, kind, _ in passes] == [(basis, kind) for kind in KINDS]
    assert [data is inputs.own[1] for _, _, data in passes[:2]] == [True, True]
    assert passes[2][2] is inputs.shared
    assert (found["gram"].examples, found["activations"].examples) == (5, 10)
    fisher, sample = found["fisher"], found["activations"]
    assert isinstance(fisher, Fisher)
    assert fisher.settings["labels"] == "model", "what is None is left to the kind"
    assert isinstance(sample, Activations)
    assert all(rows.shape[1] == 5 for rows in sample.inputs.values())


@pytest.mark.parametrize(("name", "folded"), [("bert-sequence", False), ("vit-classifier", True)])
def test_a_twin_costs_no_second_pass(passes: list[Pass], name: str, folded: bool) -> None:
    """Gram matrices and activations of a twin are those that a pass over it finds, and no such pass is made."""
    model = model_of(name)
    inputs = inputs_of(model)
    twin, alignment = twin_of(model, folded)
    kept = StatisticsStore(inputs, settings={"samples": 6})
    found = run(kept.of(0, twin, ("gram", "activations"), (model, alignment)), trainer)
    assert {basis for basis, _, _ in passes} == {basis_of(model.state_dict())}
    expected = run(StatisticsStore(inputs, settings={"samples": 6}).of(0, twin, ("gram", "activations")), trainer)
    grams, others = found["gram"], expected["gram"]
    assert isinstance(grams, Grams)
    assert isinstance(others, Grams)
    assert (grams.basis, grams.rows) == (others.basis, others.rows)
    assert_close(grams.matrices, others.matrices)
    first, second = found["activations"], expected["activations"]
    assert isinstance(first, Activations)
    assert isinstance(second, Activations)
    assert (first.basis, first.drawn) == (second.basis, second.drawn)
    assert_close(first.inputs, second.inputs)
    assert_close(first.outputs, second.outputs)


def test_what_cannot_be_moved_is_gathered_on_the_twin(passes: list[Pass]) -> None:
    """Fisher information always; the others where a gain of zero hides what a norm gives."""
    model = model_of("vit-classifier")
    description = blueprint(model, folded=True)
    with torch.no_grad():
        model.get_parameter(description.norms[0].weight)[0] = 0
    twin, alignment = twin_of(model, folded=True)
    kept = StatisticsStore(inputs_of(model))
    found = run(kept.of(0, twin, KINDS, (model, alignment)), trainer)
    basis = basis_of(twin.state_dict())
    assert {kind for owner, kind, _ in passes if owner == basis} == set(KINDS)
    assert all(statistics.basis == basis for statistics in found.values())


def test_without_data() -> None:
    """What was given is enough where it is enough, also for a twin; else the sentence says what is needed."""
    model = model_of("bert-sequence")
    twin, alignment = twin_of(model)
    batches: list[Batch] = batched(examples_for(model), 2)
    kept = StatisticsStore(given=[gather(model, batches, ["gram"], trainer=trainer)])
    assert set(run(kept.of(0, model, ["gram"]), trainer)) == {"gram"}
    assert run(kept.of(0, twin, ["gram"], (model, alignment)), trainer)["gram"].basis == basis_of(twin.state_dict())
    with pytest.raises(
        InputError, match=r"fisher .*, and those given of model 0 are gram alone; .* --kinds fisher` wrote"
    ):
        run(kept.of(0, model, ["gram", "fisher"]), trainer)
    with pytest.raises(InputError, match=r"activations .* given of model 0 are gram alone"):
        run(kept.of(0, twin, ["activations"], (model, alignment)), trainer)
    with pytest.raises(InputError, match="fisher statistics of each model are needed; expected data"):
        run(kept.of(0, twin, ["gram", "fisher"], (model, alignment)), trainer)


def test_what_is_wrong_about_one_kind_is_refused_for_all() -> None:
    """A file with Fisher information of no parameter is damaged, also where Gram matrices alone are wanted."""
    model = model_of("bert-sequence")
    found = gather(model, batched(examples_for(model), 2), ["gram", "fisher"], trainer=trainer)
    fisher = found["fisher"]
    assert isinstance(fisher, Fisher)
    strange = replace(fisher, diagonal={**fisher.diagonal, "../x": torch.ones(3)})
    kept = StatisticsStore(given=[{"gram": found["gram"], "fisher": strange}])
    with pytest.raises(InputError, match=r"hold '\.\./x' of shape \(3,\), which is no parameter of model 0"):
        run(kept.of(0, model, ["gram"]), trainer)
