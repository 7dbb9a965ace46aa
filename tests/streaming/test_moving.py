"""Merges of twins on the disk by statistics of their end models are those of twins in memory, by moved statistics."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.merging import find_method, merge_states
from fusionlab.models import aliases
from fusionlab.statistics import Statistics, basis_of
from fusionlab.statistics.files import load, save
from fusionlab.statistics.gather import gather
from fusionlab.statistics.transport import move
from fusionlab.streaming import Recipe
from fusionlab.streaming.informed import Informed
from fusionlab.streaming.knowing import informed
from fusionlab.streaming.moving import StoredTwin, informed_of_twins
from fusionlab.symmetry import Alignment, blueprint
from tests.parts import one_in
from tests.streaming.test_informed import MADE, SIZES, batches, opened

KINDS = ("gram", "activations", "fisher")
CLASSES: dict[str, Callable[[], PreTrainedModel]] = MADE | {
    "bert": lambda: BertForSequenceClassification(BertConfig(**SIZES, vocab_size=23, num_labels=3)),
}
# Norms that are folded, value biases that are cleared; else elements alone.
GAUGES = {"llama": ("folded",), "vit": ("folded", "biases"), "bert": ("biases",)}
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("regmean", {}),
    ("circuit", {"metric": "gram"}),
    ("ot", {"features": "activations", "regularization": 0.3}),
]


class Pair:
    """Two models in float64, the second the anchor; their twins by random elements; statistics of the end models."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, gauge = kind, folder, GAUGES.get(kind, ())
        self.models: list[PreTrainedModel] = []
        self.alignments: list[Alignment | None] = []
        for seed, name in enumerate("ab"):
            torch.manual_seed(seed)
            model = CLASSES[kind]().double().eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
            model.save_pretrained(folder / name)
            described = blueprint(model).in_gauge(gauge)
            assert described.gauge == gauge
            draw = torch.Generator().manual_seed(seed)
            moves = Alignment.random(described, draw) if name == "a" else Alignment.identity(described)
            self.alignments.append(moves if name == "a" or gauge else None)
            moves.apply(model).save_pretrained(folder / f"{name} twin")
            self.models.append(model)
            runs = copy.deepcopy(model).float() if kind == "mixtral" else model  # no grouped products of float64
            found = gather(runs, batches(kind, 0), KINDS, samples=12)
            basis = basis_of(model.state_dict())
            save([replace(one, basis=basis) for one in found.values()], folder / f"{name}.stats")

    def given(self) -> list[dict[str, Statistics]]:
        """Statistics as they are read from files."""
        return [load(self.folder / f"{name}.stats") for name in "ab"]

    def twin(self, name: str) -> dict[str, torch.Tensor]:
        """The parameters of a twin, tied ones under all of their names."""
        model = type(self.models[0]).from_pretrained(self.folder / f"{name} twin", dtype=torch.float64)
        return dict(model.state_dict())

    def stored(self) -> list[StoredTwin | None]:
        """The twins on the disk; none of one that nothing moved."""
        return [
            None if moves is None else StoredTwin(opened(self.folder / n), opened(self.folder / f"{n} twin"), moves)
            for n, moves in zip("ab", self.alignments, strict=True)
        ]

    def known(self, method: str, given: dict[str, Any]) -> Informed:
        """All that a method needs of the end models."""
        models = [opened(self.folder / name) for name in "ab"]
        known = informed(models, find_method(method), self.given(), given)
        assert known is not None
        return known


@pytest.fixture(scope="module", params=list(CLASSES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp("pair"))


@pytest.mark.parametrize(("method", "given"), one_in(2, WAYS), ids=str)
def test_equals_the_merge_in_memory(tmp_path: Path, pair: Pair, method: str, given: dict[str, Any]) -> None:
    """Every number and distance, by statistics that the one implementation moves for both ways."""
    twins, models = [pair.twin(name) for name in "ab"], [opened(pair.folder / f"{name} twin") for name in "ab"]
    with informed_of_twins(pair.known(method, given), pair.stored(), pair.given()) as known:
        streamed = known.merge(models, Recipe(find_method(method), given, (0.3, 0.7)), tmp_path)
    moved = []
    for own, model, twin, moves in zip(pair.given(), pair.models, twins, pair.alignments, strict=True):
        states = twin, model.state_dict()
        kinds = [own[kind] for kind in find_method(method).kinds(**given)]
        moved.append({one.kind: one if moves is None else move(one, moves, *states) for one in kinds})  # type: ignore[call-overload]
    described = blueprint(pair.models[0])
    expected = merge_states(twins, method, (0.3, 0.7), statistics=moved, blueprint=described, **given)
    found, plain = load_file(tmp_path / "model.safetensors"), merge_states(twins, "simple", (0.3, 0.7))
    held = type(pair.models[0])(pair.models[0].config).double()
    held.load_state_dict(expected)
    held.save_pretrained(tmp_path / "expected")
    written = load_file(tmp_path / "expected" / "model.safetensors")
    torch.testing.assert_close(found, written, rtol=1e-9, atol=1e-10)
    assert any(not torch.allclose(tensor, plain[name]) for name, tensor in expected.items())
    state = held.state_dict()
    for distance, twin in zip(streamed.distances, twins, strict=True):
        own_numbers = {name: tensor for name, tensor in twin.items() if name not in aliases(state)}
        assert distance == pytest.approx(parameter_distance(own_numbers, state), rel=1e-9)


def test_a_diagonal_moves_with_no_rotation(tmp_path: Path, pair: Pair) -> None:
    """Fisher information of an end model is none of its twin, as in memory; that of the twin itself is taken."""
    known, given = pair.known("fisher", {}), pair.given()
    with (
        pytest.raises(InputError, match="fisher statistics of each model are needed; expected data"),
        informed_of_twins(known, pair.stored(), given),
    ):
        pass
    own = [
        {"fisher": replace(one["fisher"], basis=basis_of(pair.twin(name)))}
        for name, one in zip("ab", given, strict=True)
    ]
    with informed_of_twins(known, pair.stored(), [*given, *own]) as found:
        assert [one["fisher"].basis for one in found.statistics] == [basis_of(pair.twin(name)) for name in "ab"]
