"""One pass, left no traces, the same on several processes, and bad input in one sentence."""

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fusionlab.errors import InputError
from fusionlab.statistics import Activations, Fisher, Grams, Statistics
from fusionlab.statistics.files import load, save
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import blueprint
from fusionlab.trainers import quiet_trainer
from tests.statistics.passes import Batch, batched, examples_for, grams_of, model_of, passed, trainer
from tests.symmetry.models import generator
from tests.together import free_port, run_together

KINDS = ("gram", "activations", "fisher")
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False,
}  # fmt: skip


@dataclass
class Examples(Dataset[Batch]):
    """Examples of one row each; a batch of them is padded."""

    examples: list[Batch]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Batch:
        return self.examples[index]


def together(examples: list[Batch]) -> Batch:
    (batch,) = batched(examples, len(examples))
    return batch


def loader(examples: list[Batch], **options: Any) -> DataLoader[Batch]:
    return DataLoader(Examples(examples), batch_size=2, collate_fn=together, **options)


def assert_close(found: Statistics, expected: Statistics, tolerance: float = 1e-10) -> None:
    assert type(found) is type(expected)
    assert (found.basis, found.examples, found.architecture) == (
        expected.basis,
        expected.examples,
        expected.architecture,
    )
    tensors: list[tuple[Any, Any]] = []
    match found, expected:
        case Grams(), Grams():
            assert (found.rows, found.maps) == (expected.rows, expected.maps)
            tensors = [(found.matrices, expected.matrices)]
        case Fisher(), Fisher():
            tensors = [(found.diagonal, expected.diagonal)]
        case Activations(), Activations():
            assert (found.drawn, found.maps) == (expected.drawn, expected.maps)
            tensors = [(found.inputs, expected.inputs), (found.outputs, expected.outputs)]
    assert tensors
    for first, second in tensors:
        assert first.keys() == second.keys()
        # Some tensors are zero but for rounding, such as the Fisher information of a key's bias.
        largest = max(float(tensor.abs().max()) for tensor in second.values())
        for name, tensor in second.items():
            scale = max(float(tensor.abs().max()), 1e-12 * largest)
            torch.testing.assert_close(first[name], tensor, rtol=0, atol=tolerance * scale)


# --- one pass -------------------------------------------------------------------------------------------------------


def test_watchers_share_one_forward() -> None:
    """Gram matrices and activations of three batches take three forwards, besides those on one example at the start."""
    model = model_of("bert-sequence")
    blueprint(model)  # what is inferred once runs the model too
    rows: list[int] = []
    handle = model.register_forward_pre_hook(lambda *given: rows.append(len(given[2]["input_ids"])), with_kwargs=True)
    passed(model, batched(examples_for(model), 2), "gram", "activations")
    handle.remove()
    assert rows[-3:] == [2, 2, 1]
    assert all(count <= 2 for count in rows[:-3])
    assert len(rows[:-3]) == 4


@pytest.mark.parametrize("kind", ["gram", "fisher"])
def test_a_model_that_computes_no_numbers_is_refused(kind: str) -> None:
    """Fisher merging would take the plain mean for it, and RegMean end in LAPACK."""
    model = model_of("bert-sequence")
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.fill_(torch.nan)
    with pytest.raises(InputError, match=f"the {kind} statistics are not finite at .*; expected a model whose outputs"):
        passed(model, batched(examples_for(model), 2), kind)


def test_every_kind_of_data_gives_the_same() -> None:
    """A list, a one-way iterator, a loader and a shuffled loader that drops its last batch: all examples, once each."""
    model = model_of("bert-sequence")
    examples = examples_for(model)
    batches = batched(examples, 2)
    expected = grams_of(model, batches)

    def stream() -> Iterator[Batch]:
        yield from batches

    for data in (stream(), loader(examples), loader(examples, shuffle=True), loader(examples, drop_last=True)):
        assert_close(grams_of(model, data), expected)


def test_half_precision_is_summed_in_float32() -> None:
    """Whatever the first parameter is in; a model of several types is run once for it, and left in them."""
    model = copy.deepcopy(model_of("bert-sequence")).bfloat16()
    model.get_parameter("bert.embeddings.word_embeddings.weight").data = torch.randn(next(model.parameters()).shape)
    types = [parameter.dtype for parameter in model.parameters()]
    batches, found, runs = batched(examples_for(model), 2), list[Grams](), list[int]()
    blueprint(model)  # what is inferred once runs the model too
    for used in (model, copy.deepcopy(model).float()):
        calls: list[object] = []
        used.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        found += [one for one in gather(used, batches, ("gram",), trainer=trainer).values() if isinstance(one, Grams)]
        runs.append(len(calls))
    torch.testing.assert_close(found[0].matrices, found[1].matrices, rtol=1e-5, atol=1e-6)
    assert runs[0] == runs[1]
    assert [parameter.dtype for parameter in model.parameters()] == types


def test_dropout_is_off() -> None:
    """A model in training mode gives the statistics of one in eval mode."""
    model = model_of("bert-sequence")
    model.get_submodule("dropout").p = 0.5  # type: ignore[assignment]
    batches = batched(examples_for(model), 2)
    expected = grams_of(model.eval(), batches)
    assert_close(grams_of(model.train(), batches), expected)


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-5), ("bf16-mixed", 5e-2)])
def test_precision_policies(precision: str, tolerance: float) -> None:
    """Any policy that keeps the model gives the matrices to its own precision, and sums them in float32 or better."""
    model = copy.deepcopy(model_of("vit-classifier")).float()
    batches = batched(examples_for(model), 2)
    expected = gather(model, batches, trainer=trainer)["gram"]
    found = gather(model, batches, trainer=lambda: trainer(precision=precision))["gram"]
    assert isinstance(found, Grams)
    assert all(matrix.dtype in (torch.float32, torch.float64) for matrix in found.matrices.values())
    double = {name: matrix.float() for name, matrix in found.matrices.items()}
    assert_close(Grams(**{**vars(found), "matrices": double}), expected, tolerance)


def test_time_and_memory_are_told() -> None:
    """The settings say how long the pass took and how many bytes its sums held: at least the matrices themselves."""
    model = model_of("vit-classifier")
    found = grams_of(model, batched(examples_for(model), 2))
    assert float(found.settings["seconds"]) > 0
    held = sum(matrix.numel() * matrix.element_size() for matrix in found.matrices.values())
    assert held <= int(found.settings["bytes above the model"]) < 2 * held


def test_an_architecture_without_a_description() -> None:
    """Statistics need no blueprint."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3).double(), nn.Linear(3, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).relu())

    found = grams_of(Small(), [{"x": torch.randn(5, 4, generator=generator(0), dtype=torch.float64)}])
    assert found.architecture == "Small"
    assert found.rows == {"first.weight": 5, "second.weight": 5}


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[], iter(()), DataLoader(Examples([]), collate_fn=together)], ids=type)
def test_empty_data_is_refused(data: Any) -> None:
    """No example, no statistics."""
    with pytest.raises(InputError, match="holds no example"):
        gather(model_of("bert-sequence"), data, trainer=trainer)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kinds": ("gramm",)}, "no 'gramm' statistics"),
        ({"kinds": ()}, "no kind of statistics"),
        ({"sample": 3}, "no setting 'sample'"),
        ({"trainer": lambda: trainer(precision="bf16-true")}, "rounds the model"),
        ({"batches": {"input_ids": torch.ones(1, 2)}}, "is one batch"),
        ({"batches": [(torch.ones(1, 2), torch.ones(1))]}, "batches of tuple"),
        ({"batches": [{"input_ids": torch.ones(1, 4).long(), "attention_mask": torch.ones(1, 4, 4)}]}, "3 dimensions"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Each in one sentence."""
    model = model_of("bert-sequence")
    given: dict[str, Any] = {"batches": batched(examples_for(model, 2), 2), "trainer": trainer, **changes}
    with pytest.raises(InputError, match=sentence):
        gather(model, given.pop("batches"), **given)


def test_texts_of_one_length_alone_are_refused() -> None:
    """Which rows are tokens is found by leaving one out, which such a model does not take."""

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Linear(4, 4)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.places((input_ids * attention_mask).float())

    text = torch.ones(2, 4, dtype=torch.long)
    with pytest.raises(InputError, match="the data does not fit the model: mat1 and mat2"):
        gather(Fixed(), [{"input_ids": text, "attention_mask": text}], trainer=trainer)


def test_a_trainer_that_keeps_what_it_found_is_refused() -> None:
    """One whose processes are copies of this one, as the strategy ``ddp_spawn`` makes them."""

    class Elsewhere(Trainer):
        def fit(self, *args: Any, **options: Any) -> Any:
            """Nothing that this process sees."""

    model = model_of("bert-sequence")
    with pytest.raises(InputError, match="processes that return nothing; expected one device or the strategy ddp"):
        gather(model, batched(examples_for(model, 2), 2), trainer=lambda: Elsewhere(devices=1, **QUIET))


def test_inputs_that_stop_being_shared_are_refused() -> None:
    """Which maps read one tensor is decided once; a model that changes its mind is not summed wrongly."""

    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x if len(x) < 3 else x.clone())

    with pytest.raises(InputError, match=r"'b.weight' and 'a.weight' read one tensor in the first batch only"):
        gather(Fickle(), [{"x": torch.randn(n, 3, generator=generator(n))} for n in (2, 3)], trainer=trainer)


# --- several processes ----------------------------------------------------------------------------------------------


def gather_as_one_of(
    rank: int, count: int, port: int, examples: list[Batch], kinds: Sequence[str], strategy: str, place: Path
) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), NODE_RANK="0", LOCAL_RANK=str(rank)
    )
    torch.manual_seed(rank)  # each would shuffle in another order, if it did
    found = gather(
        model_of("bert-sequence"),
        loader(examples, shuffle=True),
        kinds,
        trainer=lambda: quiet_trainer(strategy=strategy, devices=count, accelerator="cpu"),
        samples=9,
        labels="expected",
    )
    save(found, place / f"{rank}.safetensors")


@pytest.mark.parametrize(("strategy", "kinds"), [("ddp", KINDS), ("fsdp", KINDS[:2])])
def test_two_processes_give_what_one_gives(tmp_path: Path, strategy: str, kinds: Sequence[str]) -> None:
    """Five shuffled examples on two gloo processes: none twice, all statistics equal to rounding, on both.

    The second process has no example left for the last batch; where the model is shared out it runs it all the same.
    """
    examples = examples_for(model_of("bert-sequence"))
    expected = passed(model_of("bert-sequence"), loader(examples), *kinds, samples=9, labels="expected")
    assert run_together(gather_as_one_of, free_port(), examples, kinds, strategy, tmp_path) == [0, 0]
    for rank in range(2):
        found = load(tmp_path / f"{rank}.safetensors")
        assert set(found) == set(kinds)
        for kind in kinds:
            assert_close(found[kind], expected[kind])
