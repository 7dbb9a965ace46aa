"""Gathering statistics of several kinds in one pass over data."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import move_data_to_device
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from fusionlab.errors import InputError
from fusionlab.examples import example_count, refusing_batch, take_examples
from fusionlab.forward import forward, with_decoder_tokens
from fusionlab.models import borrowed
from fusionlab.modes import in_eval_mode
from fusionlab.sharding import let_go
from fusionlab.stages import Run, Stage, Stages, TrainerFactory, placed, result_of, run
from fusionlab.statistics import activations, fisher, gram  # noqa: F401 (each registers its kind)
from fusionlab.statistics.accumulator import Accumulator, Common, OwnPass, Watcher, find_kind
from fusionlab.statistics.accumulator import kinds as all_kinds
from fusionlab.statistics.checks import refuse_not_finite
from fusionlab.statistics.exploring import explore
from fusionlab.statistics.files import packed, unpacked
from fusionlab.statistics.linear_maps import linear_maps
from fusionlab.statistics.loading import count_of, ordered_loader, shared_out
from fusionlab.statistics.statistics import Statistics, basis_of
from fusionlab.statistics.watching import Observer
from fusionlab.trainers import quiet_trainer
from fusionlab.types import Batch


class Gathering(Stage[dict[str, Statistics]]):
    """The stage that gathers statistics of a model over data, every example once.

    Watchers share one forward for each batch; what each process found is joined once, at the end.

    Args:
        model: as `fusionlab.forward.forward` takes it; left as it was, on its device and in its mode.
        batches: see `gather`.
        kinds: some of ``gram``, ``fisher`` and ``activations``.
        ready: is told before the first batch how many bytes of statistics there will be, as far as it is known then.
        label: see `Stage`.
        settings: of the kinds.

    Raises:
        InputError: an unknown kind or setting, or data that is empty.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Batch],
        kinds: Sequence[str],
        ready: Callable[[int], object] | None = None,
        label: str = "",
        **settings: Any,
    ) -> None:
        self._accumulators = make_accumulators(kinds, settings)
        self.label = label or f"gathering {', '.join(kinds)}"
        self.model = self._run = model
        self._own = [accumulator for accumulator in self._accumulators if isinstance(accumulator, OwnPass)]
        self._loader, self._first = ordered_loader(batches)
        self.steps = count_of(self._loader)
        self._ready = ready
        self._observer: Observer | None = None
        self._shown: Batch = {}
        self._examples = 0
        # Measured on the model as it was given: a policy of double precision converts every number.
        self._basis = basis_of(model.state_dict())
        self._start = 0.0
        self._allocated = 0
        self._unchanged = ExitStack()

    def begin(self, run: Run) -> None:
        """Explore the model on one example, and let every accumulator prepare."""
        processes, dataset = run.processes, self._loader.dataset
        if not isinstance(dataset, IterableDataset) and len(dataset) < processes:  # type: ignore[arg-type]
            raise InputError(f"the data is too little for {processes} processes; expected some for each")
        self._start = time.perf_counter()
        self._unchanged.enter_context(_unchanged(self.model))
        # Gradients go through whole parameters.
        differentiates = any(one.differentiates for one in self._accumulators)
        is_shared_out = run.mesh is not None and not differentiates
        used = borrowed(self.model) if is_shared_out else self.model
        if any(one.dtype in (torch.float16, torch.bfloat16) for one in used.parameters()):
            # Half precision would blur what is summed; the numbers come back as they were.
            used.float()
        policy = run.trainer.precision_plugin
        if is_shared_out:
            self._run = placed(run, used)
        else:
            policy.convert_module(used.to(run.device))
        if run.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(run.device)
            self._allocated = torch.cuda.memory_allocated(run.device)
        first = self._shown = move_data_to_device(policy.convert_input(_checked(self.model, self._first)), run.device)
        # As in the steps: what is explored under a policy is what is seen under it.
        with policy.train_step_context():
            with refusing_batch(first), torch.no_grad():
                forward(self._run, take_examples(first, torch.tensor([0])))
            watchers = [accumulator for accumulator in self._accumulators if isinstance(accumulator, Watcher)]
            if watchers:
                maps = linear_maps(self._run)
                explore(self._run, maps, first)
                for watcher in watchers:
                    watcher.start(maps)
                self._observer = Observer(maps, watchers)
            for own in self._own:
                own.start(self._run)
        if self._ready is not None and run.trainer.is_global_zero:
            self._ready(self._collected())

    def batches(self, run: Run) -> Iterator[Batch]:
        """This process's share of the data; empty batches at its end where another process has more."""
        return shared_out(self._loader, run.global_rank, run.processes)

    def step(self, run: Run, batch: Batch) -> None:
        """Let every accumulator add a batch."""
        batch = _checked(self.model, batch)
        if not batch:
            if self._run is not self.model:
                # Another process has a batch, and runs what all of them hold parts of.
                with torch.no_grad():
                    forward(self._run, take_examples(self._shown, torch.tensor([0])))
            return
        self._examples += example_count(batch)
        with refusing_batch(batch):
            if self._observer is not None:
                self._observer.watch(self._run, batch)
            for own in self._own:
                own.update(self._run, batch)

    @torch.no_grad()
    def finish(self, run: Run) -> dict[str, Statistics]:
        """The statistics by kind, joined over all processes."""
        examples = int(run.total(torch.tensor(self._examples)))
        found = [_joined(accumulator, run) for accumulator in self._accumulators]
        # How long the pass took, joining included.
        seconds = time.perf_counter() - self._start
        held = self._collected()
        if run.device.type == "cuda":
            held = torch.cuda.max_memory_allocated(run.device) - self._allocated
        common: Common = {
            "architecture": type(self.model).__name__,
            "basis": self._basis,
            "examples": examples,
            "settings": {"seconds": f"{seconds:.2f}", "bytes above the model": str(held)},
        }
        finished = {
            accumulator.kind: accumulator.finish(totals, common)
            for accumulator, totals in zip(self._accumulators, found, strict=True)
        }
        for statistics in finished.values():
            refuse_not_finite(statistics)
        return finished

    def end(self) -> None:
        """Bring back the model's mode, device and types."""
        if self._run is not self.model:
            let_go(self._run)
        self._run = self.model
        self._unchanged.close()

    def pack(self, result: dict[str, Statistics]) -> Any:
        """The outcome as a file of statistics has it."""
        return packed(result.values())

    def unpack(self, packed: Any) -> dict[str, Statistics]:
        """The outcome as it is read from a file of statistics."""
        return unpacked(*packed)

    def _collected(self) -> int:
        """Bytes of what the accumulators hold now; sums have their size from the start, samples grow to theirs."""
        tensors = [t for a in self._accumulators for t in (*a.sums().values(), *a.samples().values())]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def gather(
    model: nn.Module,
    batches: Iterable[Batch],
    kinds: Sequence[str] = ("gram",),
    *,
    trainer: TrainerFactory | None = None,
    ready: Callable[[int], object] | None = None,
    **settings: Any,
) -> dict[str, Statistics]:
    """Statistics of a model, gathered in one pass over data.

    Args:
        model: as `fusionlab.forward.forward` takes it; left as it was, on its device and in its mode.
        batches: dicts of inputs, labels allowed: a DataLoader (gone through in order, the last batch too) or any
            iterable. Several processes share the examples of a DataLoader, and the batches of anything else.
        kinds: some of ``gram``, ``fisher`` and ``activations``.
        trainer: makes the Trainer, whose devices and precision are used; one on the model's device if None.
        ready: is told before the first batch how many bytes of sums there will be; what it raises ends the pass.
        settings: of the kinds: ``samples``, ``seed``, ``weights``, ``gradients`` and ``numbers`` (activations),
            ``labels`` and ``seed`` (fisher).

    Returns:
        By kind, the statistics, on the CPU.

    Raises:
        InputError: an unknown kind or setting, data that is empty or does not fit the model, or a Trainer that would
            round the model or keeps what it found in other processes.
    """
    return run(gathered(model, batches, kinds, ready, **settings), trainer or (lambda: _trainer_for(model)))


def gathered(
    model: nn.Module,
    batches: Iterable[Batch],
    kinds: Sequence[str],
    ready: Callable[[int], object] | None = None,
    label: str = "",
    **settings: Any,
) -> Stages[dict[str, Statistics]]:
    """The stages of `gather`; arguments and errors are the same, and see `Stage` for the label."""
    return (yield from result_of(Gathering(model, batches, kinds, ready, label, **settings)))


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


def _checked(model: nn.Module, batch: Any) -> Batch:
    """A batch with what a decoder reads."""
    if not isinstance(batch, Mapping):
        raise InputError(f"the data gives batches of {type(batch).__name__}; expected dicts of inputs by name")
    return with_decoder_tokens(model, batch)


def _joined(accumulator: Accumulator, run: Run) -> dict[str, Tensor]:
    totals = {name: run.total(tensor) for name, tensor in accumulator.sums().items()}
    samples = accumulator.samples()
    if run.processes > 1 and samples:
        parts: list[Any] = [None] * run.processes
        torch.distributed.all_gather_object(parts, samples)
        samples = {name: torch.cat([part[name] for part in parts]) for name in samples}
    return totals | samples


def _trainer_for(model: nn.Module) -> Trainer:
    device = next(model.parameters()).device
    devices: Any = 1 if device.index is None else [device.index]
    accelerator = "gpu" if device.type == "cuda" else device.type
    return quiet_trainer(accelerator=accelerator, devices=devices)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """A model in eval mode, whose mode, device and dtypes come back: the Trainer changes them."""
    places = [(parameter, parameter.device, parameter.dtype) for parameter in model.parameters()]
    # A module that is moved gets other tensors for its buffers.
    buffers = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False)
    ]
    try:
        with in_eval_mode(model):
            yield
    finally:
        for parameter, device, dtype in places:
            parameter.data = parameter.data.to(device, dtype)
        for module, name, buffer in buffers:
            setattr(module, name, buffer)
