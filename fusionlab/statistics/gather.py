"""Gathering statistics: one pass of Lightning's Trainer over data, whatever kinds are asked for."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from fusionlab.errors import InputError, first_line
from fusionlab.forward import Batch, forward
from fusionlab.statistics import activations, fisher, gram  # noqa: F401 (each registers its kind)
from fusionlab.statistics.accumulator import Accumulator, Common, OwnPass, Watcher, find_kind
from fusionlab.statistics.accumulator import kinds as all_kinds
from fusionlab.statistics.layout import example_count, take_examples
from fusionlab.statistics.linear_maps import linear_maps
from fusionlab.statistics.loading import ordered_loader
from fusionlab.statistics.statistics import Statistics, basis_of
from fusionlab.statistics.watching import Observer, explore
from fusionlab.trainers import quiet_trainer, refuse_rounding


class GatherModule(LightningModule):
    """Gathers statistics of a model over the batches of one ``trainer.predict``.

    Its sampler gives each process its share and no example twice. Watchers share one forward for each batch; what
    each process found is joined once, at the end. Devices, precision and the progress bar are the Trainer's.

    Attributes:
        statistics: by kind, on every process, once the pass is over.

    Args:
        model: as `fusionlab.forward.forward` takes it.
        accumulators: one for each kind.
        first: any batch of the data, to find out by what the linear maps read.
        ready: is told before the first batch how many bytes of statistics there will be, as far as it is known then.
    """

    def __init__(
        self,
        model: nn.Module,
        accumulators: Sequence[Accumulator],
        first: Batch,
        ready: Callable[[int], object] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.statistics: dict[str, Statistics] = {}
        self._accumulators = tuple(accumulators)
        self._own = [accumulator for accumulator in accumulators if isinstance(accumulator, OwnPass)]
        self._first = first
        self._ready = ready
        self._observer: Observer | None = None
        self._examples = torch.zeros((), dtype=torch.int64)
        # Measured on the model as it was given: a policy of double precision has its own copy of every number.
        self._basis = basis_of(model.state_dict())
        self._start = 0.0
        self._allocated = 0

    def on_predict_start(self) -> None:
        """Explore the model on one example, and let every accumulator prepare."""
        self._start = time.perf_counter()
        self.model.eval()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._allocated = torch.cuda.memory_allocated(self.device)
        # The Trainer's inference mode would forbid gradients, and sums that outlive it.
        with torch.inference_mode(False):
            self._examples = torch.zeros((), dtype=torch.int64, device=self.device)
            first = self._ordinary(self._first)
            _refuse_misfit(self.model, first)
            watchers = [accumulator for accumulator in self._accumulators if isinstance(accumulator, Watcher)]
            if watchers:
                maps = linear_maps(self.model)
                explore(self.model, maps, first)
                for watcher in watchers:
                    watcher.start(maps)
                self._observer = Observer(maps, watchers)
            for own in self._own:
                own.start(self.model)
            if self._ready is not None and self.trainer.is_global_zero:
                self._ready(self._collected())

    def predict_step(self, batch: Batch, batch_index: int) -> int:
        """Let every accumulator add a batch; returns how many examples it has."""
        with torch.inference_mode(False):
            batch = self._ordinary(batch)
            self._examples += example_count(batch)
            if self._observer is not None:
                self._observer.watch(self.model, batch)
            with torch.enable_grad():
                for own in self._own:
                    own.update(self.model, batch)
            return example_count(batch)

    def on_predict_end(self) -> None:
        """Join what all processes found."""
        with torch.inference_mode(False), torch.no_grad():
            examples = int(self._sum(self._examples))
            found = [self._joined(accumulator) for accumulator in self._accumulators]
            # How long the pass took, joining included.
            seconds = time.perf_counter() - self._start
            common: Common = {
                "architecture": type(self.model).__name__,
                "basis": self._basis,
                "examples": examples,
                "settings": {"seconds": f"{seconds:.2f}", "bytes above the model": str(self._held())},
            }
            self.statistics = {
                accumulator.kind: accumulator.finish(totals, common)
                for accumulator, totals in zip(self._accumulators, found, strict=True)
            }

    def _ordinary(self, batch: Batch) -> dict[str, Tensor]:
        """The batch on the model's device, free of inference mode, which gradients cannot pass through."""
        if not isinstance(batch, Mapping):
            raise InputError(f"the data gives batches of {type(batch).__name__}; expected dicts of inputs by name")
        return {
            name: value.to(self.device).clone() if isinstance(value, Tensor) else value for name, value in batch.items()
        }

    def _joined(self, accumulator: Accumulator) -> dict[str, Tensor]:
        totals = {name: self._sum(tensor) for name, tensor in accumulator.sums().items()}
        samples = accumulator.samples()
        if self.trainer.world_size > 1 and samples:
            parts: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(parts, samples)
            samples = {name: torch.cat([part[name] for part in parts]) for name in samples}
        return totals | samples

    def _sum(self, tensor: Tensor) -> Tensor:
        total: Any = self.trainer.strategy.reduce(tensor.to(self.device), reduce_op="sum")
        return total

    def _held(self) -> int:
        """Bytes held above the model: the peak on a GPU, elsewhere what the accumulators hold at the end."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self._allocated
        return self._collected()

    def _collected(self) -> int:
        """Bytes of what the accumulators hold now; sums have their size from the start, samples grow to theirs."""
        tensors = [t for a in self._accumulators for t in (*a.sums().values(), *a.samples().values())]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def gather(
    model: nn.Module,
    batches: Iterable[Batch],
    kinds: Sequence[str] = ("gram",),
    *,
    trainer: Callable[[], Trainer] | None = None,
    ready: Callable[[int], object] | None = None,
    **settings: Any,
) -> dict[str, Statistics]:
    """Gather statistics of a model in one pass over data.

    Args:
        model: as `fusionlab.forward.forward` takes it; left as it was, on its device and in its mode.
        batches: dicts of inputs, labels allowed: a DataLoader (gone through in order, the last batch too) or any
            iterable. Several processes share the examples of a DataLoader, and the batches of anything else.
        kinds: some of ``gram``, ``fisher`` and ``activations``.
        trainer: makes the Trainer, whose devices and precision are used; one on the model's device if None.
        ready: is told before the first batch how many bytes of sums there will be; what it raises ends the pass.
        settings: of the kinds: ``samples``, ``seed`` and ``weights`` (activations), ``labels`` and ``seed`` (fisher).

    Returns:
        By kind, the statistics, on the CPU.

    Raises:
        InputError: an unknown kind or setting, data that is empty or does not fit the model, or a Trainer that would
            round the model or keeps what it found in other processes.
    """
    accumulators = make_accumulators(kinds, settings)
    loader, first = ordered_loader(batches)
    chosen = trainer() if trainer is not None else _trainer_for(model)
    refuse_rounding(chosen.precision)
    if not isinstance(loader.dataset, IterableDataset) and len(loader.dataset) < chosen.world_size:  # type: ignore[arg-type]
        raise InputError(f"the data is too little for {chosen.world_size} processes; expected some for each")
    with _unchanged(model):
        module = GatherModule(model, accumulators, first, ready)
        if next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
            # Half precision would blur what is summed; the numbers come back as they were.
            model.float()
        chosen.predict(module, loader, return_predictions=False)
    if not module.statistics:
        raise InputError("the Trainer ran in processes that return nothing; expected one device or the strategy ddp")
    return module.statistics


def make_accumulators(kinds: Sequence[str], settings: Mapping[str, Any]) -> list[Accumulator]:
    """An accumulator for each kind, given those settings that it has.

    Args:
        kinds: which.
        settings: by name; one of a kind that is not gathered does nothing.

    Raises:
        InputError: no kind, an unknown one, or a setting that no kind has.
    """
    if not kinds:
        raise InputError("no kind of statistics was asked for; expected at least one")
    chosen = {kind: find_kind(kind) for kind in kinds}
    known = {kind: inspect.signature(find_kind(kind)).parameters for kind in all_kinds()}
    every = dict.fromkeys(name for names in known.values() for name in names)
    if unknown := [name for name in settings if name not in every]:
        raise InputError(f"statistics have no setting {unknown[0]!r}; expected some of {', '.join(every)}")
    return [
        factory(**{name: value for name, value in settings.items() if name in known[kind]})
        for kind, factory in chosen.items()
    ]


@torch.no_grad()
def _refuse_misfit(model: nn.Module, batch: Batch) -> None:
    """Run the model on one example, so that data of another kind is refused before any work."""
    try:
        forward(model, take_examples(batch, torch.tensor([0])))
    except Exception as error:
        # Every model refuses foreign inputs in its own way.
        raise InputError(f"the data does not fit the model: {first_line(error)}") from error


def _trainer_for(model: nn.Module) -> Trainer:
    device = next(model.parameters()).device
    devices: Any = 1 if device.index is None else [device.index]
    accelerator = "gpu" if device.type == "cuda" else device.type
    return quiet_trainer(accelerator=accelerator, devices=devices)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Bring back the model's mode, device and dtypes, which the Trainer changes."""
    modes = {module: module.training for module in model.modules()}
    tensors = [*model.parameters(), *model.buffers()]
    places = [(tensor.device, tensor.dtype) for tensor in tensors]
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for tensor, (device, dtype) in zip(tensors, places, strict=True):
            tensor.data = tensor.data.to(device, dtype)
