"""Entries that change nothing: what is put there, and how an alignment carries it."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_alignments, check_preservation
from fusionlab.symmetry import Alignment, SymmetryError, blueprint
from fusionlab.symmetry.unseen import filled_state, masked, note_unseen, unseen_entries
from tests.commands.small import vit
from tests.symmetry.models import generator

ROWS = "vit.layers.0.mlp.fc1.weight"


def dead_unit() -> tuple[torch.nn.Module, Alignment]:
    """A model with a unit that nothing reads, and an alignment that puts sevens where that unit reads."""
    model = vit(0)
    with torch.no_grad():
        model.get_parameter("vit.layers.0.mlp.fc2.weight")[:, 3] = 0
    entries = torch.zeros_like(model.get_parameter(ROWS), dtype=torch.bool)
    entries[3] = True
    filling = {ROWS: masked(torch.full(entries.shape, 7.0), entries)}
    return model, Alignment(blueprint(model), Alignment.random(blueprint(model), generator(1)).elements, filling)


def test_what_is_not_nan_is_put_in() -> None:
    state = {"a": torch.zeros(2, 2), "b": torch.ones(3)}
    found = filled_state(state, {"a": torch.tensor([[5.0, torch.nan], [torch.nan, 6.0]])})
    assert found["a"].tolist() == [[5, 0], [0, 6]]
    assert found["b"] is state["b"]
    assert state["a"].abs().sum() == 0
    assert filled_state(state, {}) is state


def test_copies_of_a_model_keep_the_note_and_its_state_has_none() -> None:
    model = vit(0)
    assert unseen_entries(model) == {}
    before = set(model.state_dict())
    note_unseen(model, {ROWS: torch.ones_like(model.get_parameter(ROWS), dtype=torch.bool)})
    assert unseen_entries(copy.deepcopy(model))[ROWS].all()
    assert set(model.state_dict()) == before


def test_the_note_is_of_the_numbers_that_were_noted() -> None:
    """A wider type and a head of other labels leave it; any other number, and a twin, have none."""
    model, alignment = dead_unit()
    note_unseen(model.bfloat16(), {ROWS: ~alignment.filling[ROWS].isnan()})
    assert unseen_entries(copy.deepcopy(model).double())[ROWS].sum() == alignment.filling[ROWS].shape[1]
    other = copy.deepcopy(model)
    other.classifier = torch.nn.Linear(other.classifier.in_features, 7)
    assert unseen_entries(other)
    assert unseen_entries(replace(alignment, filling={}).apply(model)) == {}
    with torch.no_grad():
        model.get_parameter("vit.layers.0.mlp.fc2.bias")[0] += 1
    assert unseen_entries(model) == {}


def test_an_alignment_fills_before_it_acts() -> None:
    model, alignment = dead_unit()
    by_hand = copy.deepcopy(model)
    with torch.no_grad():
        by_hand.get_parameter(ROWS)[3] = 7
    expected = replace(alignment, filling={}).apply(by_hand).state_dict()
    torch.testing.assert_close(alignment.apply(model).state_dict(), expected)
    assert check_preservation(model, alignment.apply(model), alignment).exact < 1e-10


def test_products_fill_first_or_not_at_all() -> None:
    model, alignment = dead_unit()
    after = Alignment.random(blueprint(model), generator(2))
    expected = after.apply(alignment.apply(model)).state_dict()
    torch.testing.assert_close(after.compose(alignment).apply(model).state_dict(), expected)
    with pytest.raises(SymmetryError, match="expected it to act first"):
        alignment.compose(after)


def test_a_saved_alignment_fills_too(tmp_path: Path) -> None:
    model, alignment = dead_unit()
    alignment.save(tmp_path / "a.safetensors")
    found = Alignment.load(tmp_path / "a.safetensors", blueprint(model))
    assert found.elements.keys() == alignment.elements.keys()
    torch.testing.assert_close(found.apply(model).state_dict(), alignment.apply(model).state_dict())
    strange = Alignment(alignment.blueprint, {}, {"head.weight": torch.ones(2)})
    strange.save(tmp_path / "b.safetensors")
    with pytest.raises(SymmetryError, match=r"fills 'head\.weight', which no"):
        Alignment.load(tmp_path / "b.safetensors", blueprint(model))


def test_a_filling_that_is_seen_is_refused() -> None:
    model, alignment = dead_unit()
    entries = torch.zeros_like(model.get_parameter(ROWS), dtype=torch.bool)
    entries[4] = True
    seen = replace(alignment, filling={ROWS: masked(torch.full(entries.shape, 7.0), entries)})
    with pytest.raises(InputError, match="filling a grown model changed its function"):
        check_preservation(model, seen.apply(model), seen)
    with pytest.raises(InputError, match="filling a grown model changed its function"):
        check_alignments([model], [replace(seen, elements={})])
