"""Polish: a short distillation of a merged model towards its end models' outputs, without labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fusionlab import sharding
from fusionlab.errors import InputError
from fusionlab.learning.batches import DistillationBatch
from fusionlab.learning.descent import Descent, Mean, share_of_mean
from fusionlab.learning.distillation import distillation_loss, output_of, rows_that_count
from fusionlab.learning.mixtures import ENOUGH
from fusionlab.learning.supplement import SYNTHETIC
from fusionlab.models import borrowed, with_state
from fusionlab.stages import Run, Stages, TrainerFactory, placed, result_of, run
from fusionlab.types import Batch, Model

# Adam moves every weight by about the learning rate, so an output by that times the width; see `PolishOptions`.
WIDTH_TIMES_RATE, HIGHEST_RATE, WARMUP = 0.064, 1e-3, 0.05


# The part of a merged model that learns from the end model in a place, or from all.
Answering = Callable[[nn.Module, int | None], nn.Module]


def whole(merged: nn.Module, place: int | None) -> nn.Module:
    """The merged model itself."""
    return merged


@dataclass(frozen=True)
class PolishOptions:
    """Options of the polish of a merged model.

    Attributes:
        steps: of AdamW, at least 1.
        learning_rate: peak learning rate of AdamW, above 0; None for 0.064 over the model's width, at most 0.001 (0.001
            for width 64, 0.00008 for 768).
        batch_size: examples in one step, at least 1; fewer where fewer are given. None is 128, or fewer whose outputs
            are 2,048 together, as texts with one for each token have.
        weight_decay: AdamW's, 0 or more.
        temperature: of the distillation, above 0; softer targets say more where inputs are few or synthetic.
        mixtures: fewer inputs than this are filled up with mixtures of two of them (mixup), where they are images or
            other real numbers; 0 for none.
        synthetic: so many synthetic inputs are added to very few that all models share, fewer the more there are, and
            none to 1,000: images, or texts where the models write any. 0 for none. None are added to synthetic ones.
        seed: of the mixtures and of the order of the examples.
    """

    steps: int = 600
    learning_rate: float | None = None
    batch_size: int | None = None
    weight_decay: float = 0.01
    temperature: float = 2.0
    mixtures: int = ENOUGH
    synthetic: int = SYNTHETIC
    seed: int = 0

    def __post_init__(self) -> None:
        rate = 1.0 if self.learning_rate is None else self.learning_rate
        for name, value, allowed, expected in (
            ("steps", self.steps, self.steps >= 1, "at least 1"),
            ("learning_rate", rate, math.isfinite(rate) and rate > 0, "above 0"),
            ("batch_size", self.batch_size, self.batch_size is None or self.batch_size >= 1, "at least 1"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more"),
            ("temperature", self.temperature, self.temperature > 0, "above 0"),
            ("mixtures", self.mixtures, self.mixtures >= 0, "0 or more"),
            ("synthetic", self.synthetic, self.synthetic >= 0, "0 or more"),
        ):
            if not allowed:
                raise InputError(f"polish {name} is {value}; expected {expected}")

    def rate(self, model: nn.Module) -> float:
        """The peak learning rate for a model."""
        if self.learning_rate is not None:
            return self.learning_rate
        widths = sorted(min(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2)
        return min(HIGHEST_RATE, WIDTH_TIMES_RATE / widths[len(widths) // 2]) if widths else HIGHEST_RATE


class _Answers(nn.Module):
    """The student with what it answers by, as one module: what is shared out is gathered by the call of all of it."""

    def __init__(self, model: nn.Module, answering: Answering) -> None:
        super().__init__()
        self.model, self._answering = model, answering

    def forward(self, place: int | None, inputs: Batch) -> Tensor:
        return output_of(self._answering(self.model, place), inputs)


class Polishing(Descent[dict[str, Tensor]]):
    """The stage that trains a copy of the merged model to return what its end models return on average.

    Dropout stays off. The result is the trained copy's state.

    Args:
        merged: the model to polish; not modified.
        end_models: the teachers, of any basis: only their outputs count; not modified.
        batches: see `Descent`.
        options: how.
        known: for each end model which labels it knows, bool of shape ``(classes,)``; all if None.
        label: see `Stage`.
        answering: see `polish`.
        weights: see `polish`.

    Raises:
        InputError: no end model, a number of sources that fits neither, or a merged model without anything to train.
    """

    def __init__(
        self,
        merged: nn.Module,
        end_models: Sequence[nn.Module],
        batches: Any,
        options: PolishOptions,
        known: Sequence[Tensor] | None = None,
        label: str = "polishing",
        answering: Answering = whole,
        weights: Sequence[float] | None = None,
    ) -> None:
        if not end_models:
            raise InputError("polish was given no end model; expected at least one to learn from")
        self.options = options
        self.student = copy.deepcopy(merged).eval()
        # Half precision cannot hold steps this small.
        self.student.to(torch.promote_types(next(merged.parameters()).dtype, torch.float32))
        if not any(parameter.requires_grad for parameter in self.student.parameters()):
            raise InputError("all parameters of the merged model are frozen; expected some that polish may train")
        self._answers = _Answers(self.student, answering)
        teachers = [borrowed(model).eval() for model in end_models]
        super().__init__(label, self.student, teachers, batches, options, known, weights=weights)

    def place(self, run: Run) -> None:
        """Bring the copy to where the descent runs; shared out, each process trains a part of every parameter."""
        self._answers = placed(run, self._answers)
        self.learned = self.student = self._answers.model

    def make_optimizer(self) -> tuple[Optimizer, LRScheduler]:
        """AdamW; the learning rate rises over the first twentieth and then falls as a cosine."""
        from transformers import get_scheduler  # noqa: PLC0415 - takes a second where PEFT is installed

        options = self.options
        trained = [parameter for parameter in self.student.parameters() if parameter.requires_grad]
        optimizer = AdamW(trained, lr=options.rate(self.student), weight_decay=options.weight_decay)
        schedule = get_scheduler("cosine", optimizer, round(WARMUP * options.steps), options.steps)
        return optimizer, schedule

    def loss(self, run: Run, batch: Sequence[DistillationBatch]) -> Tensor:
        """This process's share of the mean loss over the sources, by the weights of who teaches there."""
        shares = [1.0 if source.own is None else self.weights[source.own] for source in batch]
        taught = [(share, source) for share, source in zip(shares, batch, strict=True) if share]
        return torch.stack([share * share_of_mean(run, source, self._mean_loss) for share, source in taught]).sum()

    def _mean_loss(self, batch: DistillationBatch) -> Mean:
        output: Tensor = self._answers(batch.own, batch.inputs)
        loss = distillation_loss(output, self.targets(batch), batch.inputs, self.options.temperature)
        return loss, rows_that_count(output, batch.inputs)

    def finish(self, run: Run) -> dict[str, Tensor]:
        """The state of the polished model, whole in every process."""
        self.forget()
        return {name: sharding.whole(tensor) for name, tensor in self.student.state_dict().items()}

    def pack(self, result: dict[str, Tensor]) -> Any:
        """The state as it is."""
        return dict(result)

    def unpack(self, packed: Any) -> dict[str, Tensor]:
        """The state as it is."""
        return dict(packed)


def polished(
    merged: Model,
    end_models: Sequence[nn.Module],
    batches: Any,
    options: PolishOptions | None = None,
    known: Sequence[Tensor] | None = None,
    label: str = "polishing",
    answering: Answering = whole,
    weights: Sequence[float] | None = None,
) -> Stages[Model]:
    """The stages of `polish`; arguments and errors are the same, and see `Stage` for the label."""
    chosen = options or PolishOptions()
    state = yield from result_of(Polishing(merged, end_models, batches, chosen, known, label, answering, weights))
    return with_state(merged, state)


def polish(
    merged: Model,
    end_models: Sequence[nn.Module],
    batches: Any,
    options: PolishOptions | None = None,
    trainer: TrainerFactory | None = None,
    known: Sequence[Tensor] | None = None,
    answering: Answering = whole,
    weights: Sequence[float] | None = None,
) -> Model:
    """A merged model after its end models' averaged outputs were distilled into it (Hinton, Vinyals and Dean, 2015).

    Args:
        merged: what to start from; not modified.
        end_models: the teachers, of any basis: only their outputs count; not modified.
        batches: inputs by name, labels ignored: batches that all end models teach on; or a list with one iterable of
            batches for each end model, which then teaches alone on its own.
        options: how; the defaults if None.
        trainer: makes the Trainer; one quiet process if None.
        known: for each end model which labels it knows, bool of shape ``(classes,)``; all if None.
        answering: gives the module that learns from an end model, of the merged one (such as a body under that task's
            head) and the end model's place; of None, which stands for all of them, too. The merged model itself by
            default.
        weights: how much each end model teaches, scaled to sum to 1; all alike if None.

    Returns:
        A new model of the merged model's class, types and device, in eval mode.

    Raises:
        InputError: no inputs, inputs or weights that do not fit the number of end models.
    """
    return run(polished(merged, end_models, batches, options, known, answering=answering, weights=weights), trainer)
