"""The optimiser: what is decayed, and how the learning rate goes."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fusionlab.errors import InputError
from fusionlab.tasks import CausalLanguageModelling, FineTuning, ImageClassification, SequenceClassification
from tests.tasks.sample import bert
from tests.tasks.test_image_classification import VIT

GPT2 = {"model_type": "gpt2", "vocab_size": 200, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
DEBERTA = bert(model_type="deberta-v2", relative_attention=True, pos_att_type=["c2p"], max_relative_positions=4)
CASES: Mapping[str, tuple[Callable[[], FineTuning], set[str]]] = {
    "vit": (lambda: ImageClassification(VIT, 10), {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"}),
    "bert": (lambda: SequenceClassification(bert(), num_classes=2), {"bert.embeddings.position_embeddings.weight"}),
    "deberta": (
        lambda: SequenceClassification(DEBERTA, num_classes=2),
        {"deberta.embeddings.position_embeddings.weight", "deberta.encoder.rel_embeddings.weight"},
    ),
    "gpt2": (lambda: CausalLanguageModelling(GPT2), {"transformer.wpe.weight"}),
}


@pytest.mark.parametrize("name", CASES)
def test_only_matrices_are_decayed(name: str) -> None:
    """Not decayed are single vectors (biases, gains) and, of everything else, special tokens and position tables."""
    build, special = CASES[name]
    task = build()
    decayed, kept = task._parameter_groups()
    names = {id(parameter): name for name, parameter in task.model.named_parameters()}
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
    assert "weight_decay" not in decayed
    assert kept["weight_decay"] == 0
    assert all(parameter.ndim > 1 for parameter in decayed["params"])
    assert {names[id(parameter)] for parameter in kept["params"] if parameter.ndim > 1} == special


def rates(steps: float, **training: Any) -> list[float]:
    """The learning rate of each step, and after the last."""
    task = SequenceClassification(bert(), num_classes=2, **training)
    task._trainer = SimpleNamespace(estimated_stepping_batches=steps)  # type: ignore[assignment]
    found: Any = task.configure_optimizers()
    optimizer, scheduler = found["optimizer"], found["lr_scheduler"]["scheduler"]
    assert found["lr_scheduler"]["interval"] == "step"
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(int(steps)):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    ("schedule", "middle", "end"), [("linear", 0.5, 0.0), ("cosine", 0.5, 0.0), ("constant", 1.0, 1.0)]
)
def test_the_rate_rises_then_falls(schedule: str, middle: float, end: float) -> None:
    """Of 100 steps 6 rise from 0 to the peak; half way through the others, and at the end, it is what the name says."""
    found = rates(100, learning_rate=4.0, schedule=schedule)
    assert [found[step] for step in (0, 3, 6)] == pytest.approx([0, 2, 4])
    assert found[53] == pytest.approx(4 * middle)
    assert found[100] == pytest.approx(4 * end, abs=1e-9)


def test_linear_is_linear() -> None:
    """Every step of the way down is as long as any other."""
    found = rates(20, learning_rate=1.0, warmup_ratio=0.25, schedule="linear")
    assert found == pytest.approx([*(step / 5 for step in range(5)), *(1 - step / 15 for step in range(16))])


def test_a_schedule_needs_an_end() -> None:
    """Training without an end is refused in one sentence."""
    with pytest.raises(InputError, match=r"trainer\.max_epochs or trainer\.max_steps"):
        rates(float("inf"))
