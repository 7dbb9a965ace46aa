"""Merges by statistics of a part of the parameters at a time are those of models in memory."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab.atomic import MANIFEST
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.merging import find_method, merge_states
from fusionlab.models import aliases, with_state
from fusionlab.statistics import Fisher, Grams, Statistics, basis_of
from fusionlab.statistics.files import load, save
from fusionlab.statistics.gather import gather
from fusionlab.streaming import Manifest, Recipe, StoredModel, made_of, may_stream, open_folder, twins
from fusionlab.streaming.informed import Informed
from fusionlab.streaming.knowing import informed
from fusionlab.streaming.merge import Streamed
from fusionlab.symmetry import blueprint
from tests.parts import one_in
from tests.streaming.folders import read

SIZES = {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2}
WORDS = {**SIZES, "num_key_value_heads": 1, "vocab_size": 23}
MADE: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**WORDS, tie_word_embeddings=False)),
    "tied llama": lambda: LlamaForCausalLM(LlamaConfig(**WORDS, tie_word_embeddings=True, attention_bias=True)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**WORDS, num_local_experts=3, num_experts_per_tok=2)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=12, n_layer=2, n_head=2, n_positions=16, vocab_size=23)),
    "vit": lambda: ViTForImageClassification(ViTConfig(**SIZES, image_size=8, patch_size=4, num_labels=3)),
}
T5 = {"d_model": 12, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 2, "vocab_size": 23}
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("regmean", {}),
    ("regmean", {"alpha": 1.0, "normalize": False, "ridge": 0.1}),
    ("fisher", {}),
    ("fisher", {"floor": 1.0}),
    ("fisher", {"normalize": "model", "floor": 0.5}),
    ("fisher", {"normalize": "parameter", "floor": 0.5}),
    ("circuit", {"metric": "gram"}),
]
ALONE: list[tuple[str, dict[str, Any]]] = [
    ("circuit", {}),
    ("ot", {"regularization": 0.3}),
    ("ot", {"solver": "exact", "residual": "all", "attention": "equal"}),
]


def batches(kind: str, seed: int) -> list[dict[str, Tensor]]:
    """A few random inputs; words of each model are others."""
    draw = torch.Generator().manual_seed(seed)
    if kind == "vit":
        return [{"pixel_values": torch.randn(4, 3, 8, 8, generator=draw, dtype=torch.float64)} for _ in range(2)]
    return [{"input_ids": torch.randint(seed, 20 + seed, (3, 9), generator=draw)} for _ in range(2)]


def opened(folder: Path) -> StoredModel:
    """A folder as it lies on the disk."""
    found = open_folder(folder.name, folder)
    assert found is not None
    return found


def in_memory(kind: str, folder: Path) -> PreTrainedModel:
    """A folder as transformers reads it."""
    made = {"vit": AutoModelForImageClassification, "t5": AutoModelForSeq2SeqLM}.get(kind, AutoModelForCausalLM)
    model: PreTrainedModel = made.from_pretrained(folder, dtype="auto").eval()
    return model


@pytest.fixture(scope="module", params=list(MADE))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Two models in float64 in shards, of random numbers everywhere, and files of statistics of each."""
    kind, root = request.param, tmp_path_factory.mktemp("pair")
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = (T5ForConditionalGeneration(T5Config(**T5)) if kind == "t5" else MADE[kind]()).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(root / name, max_shard_size="5KB")
        if kind == "t5":
            continue
        model, kinds = in_memory(kind, root / name), ("gram", "fisher")
        basis = basis_of(model.state_dict())
        if kind == "mixtral":  # no grouped products of float64
            model = model.float()
        found = gather(model, batches(kind, seed), kinds).values()
        save([replace(one, basis=basis) for one in found], root / f"{name}.stats")
    return kind, root


def known_of(root: Path, method: str, **given: Any) -> tuple[list[StoredModel], Informed]:
    """The models as they lie on the disk, and what the files of statistics say of them, in another order."""
    models, chosen = [opened(root / name) for name in "ab"], find_method(method)
    assert may_stream(models, None, chosen)
    statistics = [load(root / f"{name}.stats") for name in "ba"] if chosen.kinds(**given) else []
    known = informed(models, chosen, statistics, given)
    assert known is not None
    return models, known


def stated(kind: str, root: Path) -> tuple[list[dict[str, Tensor]], list[dict[str, Statistics]]]:
    """States in memory, with ties, and statistics of each."""
    states = [in_memory(kind, root / name).state_dict() for name in "ab"]
    return states, [load(root / f"{name}.stats", state) for name, state in zip("ab", states, strict=True)]


def refuse_other_distances(streamed: Streamed, states: list[dict[str, Tensor]], merged: dict[str, Tensor]) -> None:
    """Distances are told over all numbers, those of tied parameters once."""
    for distance, state in zip(streamed.distances, states, strict=True):
        tied = aliases(state)
        own = {name: tensor for name, tensor in state.items() if name not in tied}
        assert distance == pytest.approx(parameter_distance(own, merged), rel=1e-9)


# Every kind of model by the methods as they are, their other settings by turns.
DEFAULT = [(kind, *way) for way in WAYS if not way[1] for kind in MADE]
SET = [(kind, *way) for kind, way in zip(MADE, [way for way in WAYS if way[1]], strict=True)]


@pytest.mark.parametrize(("pair", "method", "given"), DEFAULT + SET, indirect=["pair"], ids=str)
def test_equals_the_merge_in_memory(tmp_path: Path, pair: tuple[str, Path], method: str, given: dict[str, Any]) -> None:
    """Every number and distance, with weights; all bytes are told; files are as the first model's."""
    kind, root = pair
    models, known = known_of(root, method, **given)
    told: list[int] = []
    streamed = known.merge(models, Recipe(find_method(method), given, (0.3, 0.7)), tmp_path, advance=told.append)
    states, statistics = stated(kind, root)
    described = blueprint(in_memory(kind, root / "a")) if method == "circuit" else None
    expected = merge_states(states, method, (0.3, 0.7), statistics=statistics, blueprint=described, **given)
    assert sum(told) == sum(tensor.size for tensor in models[0].tensors.values())
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == sorted(
        path.name for path in (root / "a").glob("*.safetensors")
    )
    (tmp_path / "config.json").write_bytes((root / "a" / "config.json").read_bytes())
    found = in_memory(kind, tmp_path).state_dict()
    plain = merge_states(states, "simple", (0.3, 0.7))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-9, atol=1e-11)
    assert any(not torch.allclose(tensor, plain[name]) for name, tensor in found.items())
    refuse_other_distances(streamed, states, expected)


@pytest.mark.parametrize(
    ("pair", "method", "given"),
    one_in(7, [(kind, *way) for kind in (*MADE, "t5") for way in ALONE]),
    indirect=["pair"],
    ids=str,
)
def test_what_needs_no_statistics(tmp_path: Path, pair: tuple[str, Path], method: str, given: dict[str, Any]) -> None:
    """By the blueprint alone the merge is that of models in memory too, once it is in a model."""
    kind, root = pair
    models, known = known_of(root, method, **given)
    told: list[int] = []
    streamed = known.merge(models, Recipe(find_method(method), given, (0.3, 0.7)), tmp_path, advance=told.append)
    assert sum(told) == sum(tensor.size for tensor in models[0].tensors.values())
    first, second = (in_memory(kind, root / name) for name in "ab")
    states = [first.state_dict(), second.state_dict()]
    expected = with_state(first, merge_states(states, method, (0.3, 0.7), blueprint=blueprint(first), **given))
    (tmp_path / "config.json").write_bytes((root / "a" / "config.json").read_bytes())
    found, plain = in_memory(kind, tmp_path).state_dict(), merge_states(states, "simple", (0.3, 0.7))
    torch.testing.assert_close(found, expected.state_dict(), rtol=1e-9, atol=1e-11)
    assert any(not torch.allclose(tensor, plain[name]) for name, tensor in found.items())
    refuse_other_distances(streamed, states, expected.state_dict())


@pytest.mark.parametrize("method", ["regmean", "fisher"])
def test_one_part_is_in_memory(
    tmp_path: Path, pair: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What was read of one part of the models is gone when the next is read, and so are Gram matrices."""
    _, root = pair
    models, known = known_of(root, method)
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    plain_read, plain_mean = twins.PartReader.read, Grams.mean

    def still() -> int:
        return sum(1 for one in alive if one() is not None)

    def counted(self: Any, names: Sequence[str]) -> dict[str, Tensor]:
        nonlocal most
        if still() > most:
            gc.collect()  # what only cycles hold is gone as well; at each read this would take most of the test
            most = max(most, still())
        found = plain_read(self, names)
        alive.extend(weakref.ref(tensor) for tensor in {id(t): t for t in found.values()}.values())
        return found

    def mean(self: Grams, weight: str) -> Tensor:
        found = plain_mean(self, weight)
        alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(twins.PartReader, "read", counted)
    monkeypatch.setattr(Grams, "mean", mean)
    known.merge(models, Recipe(find_method(method), {}, (0.5, 0.5)), tmp_path)
    assert len(alive) > 40
    assert most <= 2  # of the first model a weight and its bias, while the second's are read


def test_statistics_of_another_model_are_not_taken(pair: tuple[str, Path]) -> None:
    """One number that differs is another model; so is one of which there are statistics of another kind."""
    _, root = pair
    models = [opened(root / name) for name in "ab"]
    first, second = (load(root / f"{name}.stats") for name in "ab")
    method = find_method("regmean")
    assert informed(models, method, [first, second]) is not None
    of_others = r"gram statistics of each model are needed, and those given .* other models than .*\bb \("
    of_another_kind = r"gram statistics .*, and those given of .*\bb are fisher alone; .* --kinds gram` wrote"
    for given, sentence in (
        ([first, first], of_others),
        ([first, {"fisher": second["fisher"]}], of_another_kind),
    ):
        with pytest.raises(InputError, match=sentence):
            informed(models, method, given)
        assert informed(models, method, given, has_data=True) is None
        adapted = [replace(model, base="of an adapter") for model in models]
        assert informed(adapted, method, given) is None  # in memory the last bit may be another one
    assert informed([models[0], models[0]], method, [first]) is not None


def test_digest_is_that_of_the_state(pair: tuple[str, Path]) -> None:
    """A change of the last bit of a number is seen, in any parameter."""
    kind, root = pair
    models = [opened(root / name) for name in "ab"]
    state = in_memory(kind, root / "a").state_dict()
    stats = load(root / "b.stats")

    def of(state: Mapping[str, Tensor]) -> Statistics:
        return Fisher(architecture="", basis=basis_of(state), examples=1, diagonal={})

    method = find_method("fisher")
    assert informed(models, method, [{"fisher": of(state)}, stats]) is not None
    name = list(state)[-1]
    changed = {**state, name: state[name].clone()}
    changed[name].view(-1)[0] += 1e-12
    with pytest.raises(InputError, match="fisher statistics of each model are needed"):
        informed(models, method, [{"fisher": of(changed)}, stats])


def test_strangers_are_refused(pair: tuple[str, Path]) -> None:
    """Fisher information of what is no parameter, in the words of a merge in memory."""
    kind, root = pair
    models = [opened(root / name) for name in "ab"]
    state = in_memory(kind, root / "a").state_dict()
    odd = Fisher(architecture="", basis=basis_of(state), examples=1, diagonal={"odd": torch.ones(2)})
    with pytest.raises(
        InputError, match=r"the fisher statistics hold 'odd' of shape .*, which is no parameter of model 0"
    ):
        informed(models, find_method("regmean"), [load(root / "b.stats"), {**load(root / "a.stats"), "fisher": odd}])


@pytest.mark.parametrize("method", ["regmean", "fisher"])
def test_goes_on_with_complete_files(tmp_path: Path, pair: tuple[str, Path], method: str) -> None:
    """A second call writes the files that are missing, and tells the same distances."""
    _, root = pair
    models, known = known_of(root, method)
    described, recipe = made_of({}, {}), Recipe(find_method(method), {}, (0.5, 0.5))
    (tmp_path / MANIFEST).touch()
    first = known.merge(models, recipe, tmp_path, manifest=Manifest(tmp_path, described))
    numbers = read(tmp_path)
    gone, *kept = sorted(tmp_path.glob("*.safetensors"))
    times = {path: path.stat().st_mtime_ns for path in kept}
    gone.unlink()
    again = known.merge(models, recipe, tmp_path, manifest=Manifest(tmp_path, described))
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    assert again.distances == pytest.approx(first.distances)
    assert all(torch.equal(tensor, numbers[name]) for name, tensor in read(tmp_path).items())
