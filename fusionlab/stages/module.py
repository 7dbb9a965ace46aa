"""A module whose fit runs stages: each is an epoch, by manual optimisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from fusionlab.errors import InputError
from fusionlab.sharding_strategy import ShardingStrategy, refuse_sharding
from fusionlab.stages.stage import Stage, Stages
from fusionlab.trainers import NamedProgressBar, refuse_rounding

RETURNS_NOTHING = "the Trainer ran in processes that return nothing; expected one device or the strategy ddp"


class StagedModule(LightningModule, ABC):
    """``trainer.fit`` runs stages one after another, each as an epoch.

    How long the fit takes follows from the stages alone, whatever the Trainer is told about epochs and steps. A
    checkpoint holds the results of finished stages and the state of the present one, so that a run that was cut goes on
    where it was: the code that asks for stages runs again from its start, and is given the results that there are.

    Attributes:
        stage: the present one; None before the first and after the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        # A distributed strategy wants something to train; the parameters of a stage exist only while it runs.
        self.placeholder = nn.Parameter(torch.zeros(()))
        self.stage: Stage[Any] | None = None
        self._stages: Stages[Any] | None = None
        self._has_begun = False
        self._is_over = False
        self._outcome: Any = None
        self._packed: list[tuple[str, Any]] = []
        self._saved: dict[str, Any] | None = None
        self._limits: tuple[int | None, int] | None = None

    @abstractmethod
    def stages(self) -> Stages[Any]:
        """The stages to run."""

    @property
    def is_fresh(self) -> bool:
        """True if no stage has begun yet."""
        return not (self._has_begun or self._is_over or self._packed)

    @property
    def outcome(self) -> Any:
        """The result of the stages.

        Raises:
            InputError: they have not been run to their end in this process.
        """
        if not self._is_over:
            if self.stage is not None and self._has_begun:
                raise InputError(
                    f"the fit was stopped in the middle of {self.stage.label!r}; expected it to run to its end (a "
                    f"checkpoint of it goes on: `ckpt_path`)"
                )
            if self.stage is not None and self._packed:
                raise InputError(
                    f"the fit was stopped before {self.stage.label!r}; expected it to run to its end (a checkpoint of "
                    f"it goes on: `ckpt_path`)"
                )
            raise InputError(RETURNS_NOTHING)
        return self._outcome

    def advance(self, result: Any = None) -> None:
        """Go on to the next stage.

        Args:
            result: of the present one.
        """
        self._has_begun = False
        try:
            if self._stages is None:
                self._stages = self.stages()
                self.stage = next(self._stages)
            else:
                self.stage = self._stages.send(result)
        except StopIteration as last:
            self.stage, self._is_over, self._outcome = None, True, last.value
            return
        if self._saved is not None and len(self._packed) < len(self._saved["results"]):
            label, packed = self._saved["results"][len(self._packed)]
            self._refuse_other(label)
            self._packed.append((label, packed))
            self.advance(self.stage.unpack(packed))

    def _refuse_other(self, label: str) -> None:
        assert self.stage is not None
        if label != self.stage.label:
            raise InputError(
                f"the checkpoint is of a run that did {label!r} where this one does {self.stage.label!r}; expected a "
                f"checkpoint of the same plan"
            )

    def close(self) -> None:
        """Let the stages leave their models as they were."""
        if self._stages is not None:
            self._stages.close()

    def _begin(self) -> Iterator[Any]:
        """Begin the present stage; its batches."""
        if self._stages is None:
            self.advance()
        if self.stage is None:
            return iter(())
        if not self._has_begun:
            self.stage.begin(self)
            self._has_begun = True
            saved, self._saved = self._saved, None
            if saved is not None and saved["stage"] is not None:
                label, state = saved["stage"]
                self._refuse_other(label)
                if state is not None:
                    self.stage.restore(state)
            found = self.stage.optimizer
            self.trainer.strategy.optimizers = [] if found is None else [found[0]]
        return self.stage.batches(self)

    # --- fit ---------------------------------------------------------------------------------------------------------

    def configure_callbacks(self) -> list[Callback]:
        """A progress bar that names the stage, in place of Lightning's own where that is shown."""
        shown = self.trainer.progress_bar_callback
        callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        # A Trainer that has fitted keeps it; Lightning would say that another one took its place.
        undoing: list[Callback] = [] if any(isinstance(one, _Undoing) for one in callbacks) else [_Undoing()]
        if shown is None or type(shown) not in (TQDMProgressBar, RichProgressBar):
            return undoing
        callbacks.remove(shown)
        return [*undoing, NamedProgressBar("testing")]

    def configure_optimizers(self) -> None:
        """None; every descent brings its own."""

    def train_dataloader(self) -> StageLoader:
        """The batches of whichever stage is the present one."""
        return StageLoader(self._begin)

    def setup(self, stage: str) -> None:
        """Let the stages decide how long the fit takes, and which batches it goes through.

        Raises:
            InputError: a precision that rounds models, a strategy that spreads one over processes, or a Trainer that
                goes through no batches.
        """
        super().setup(stage)
        if stage != "fit":
            return
        if not self.is_fresh:
            # Another fit starts from the beginning, or from a checkpoint that is read after this.
            self.close()
            self._stages, self.stage, self._saved, self._packed = None, None, None, []
            self._has_begun = self._is_over = False
        refuse_rounding(self.trainer.precision)
        refuse_sharding(self.trainer.strategy)
        if self.trainer.limit_train_batches == 0:
            raise InputError("limit_train_batches is 0; expected the Trainer to go through batches")
        loop = self.trainer.fit_loop
        self._limits = loop.max_epochs, loop.epoch_loop.max_steps
        loop.max_epochs, loop.epoch_loop.max_steps = -1, -1
        # Whatever training data the Trainer was given, stages go through them as they need to. There is no public way.
        loop._data_source.instance = self

    def on_train_batch_start(self, batch: Any, batch_index: int) -> None:
        """Do what comes before a step."""
        assert self.stage is not None
        self.stage.prepare(self, batch)

    def training_step(self, batch: Any, batch_index: int) -> None:
        """Do one batch of the present stage, with a step of its optimizer where it has one."""
        assert self.stage is not None
        loss = self.stage.step(self, batch)
        if loss is None:
            return
        found = self.stage.optimizer
        assert found is not None
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss + 0 * self.placeholder)
        self.placeholder.grad = None
        self._total_gradients([p for group in optimizer.param_groups for p in group["params"]])
        optimizer.step()
        rate = found[1].get_last_lr()[0]
        found[1].step()
        told = {"loss": self.total(loss.detach()), "learning rate": rate}
        self.log_dict({f"{self.stage.label}/{name}": value for name, value in told.items()}, batch_size=1)
        self.log("loss", told["loss"], prog_bar=True, logger=False, batch_size=1)

    def _total_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients over processes; what no process has a gradient of keeps none, and so is not decayed either."""
        if self.processes == 1:
            return
        # Those of models that are shared out are sums already.
        parameters = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
        has = self.total(torch.tensor([p.grad is not None for p in parameters], device=self.device).float())
        for parameter, count in zip(parameters, has.tolist(), strict=True):
            if count:
                parameter.grad = self.total(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)

    @property
    def processes(self) -> int:
        """The number of processes that run the stages; one before there is a Trainer."""
        return 1 if self._trainer is None else self.trainer.world_size

    @property
    def mesh(self) -> DeviceMesh | None:
        """The processes that models are shared out over; None where each holds them whole."""
        strategy = None if self._trainer is None else self.trainer.strategy
        return strategy.mesh if isinstance(strategy, ShardingStrategy) and self.processes > 1 else None

    def total(self, part: Tensor) -> Tensor:
        """The sum of a tensor over all processes, on this one's device."""
        if self.processes == 1:
            return part
        found: Tensor = self.trainer.strategy.reduce(part.to(self.device), reduce_op="sum")
        return found

    def on_train_epoch_end(self) -> None:
        """Finish the present stage, unless the Trainer was told to stop in the middle of it, and go on to the next."""
        stage = self.stage
        if stage is not None and not self._is_cut():
            result = stage.finish(self)
            self._packed.append((stage.label, stage.pack(result)))
            self.advance(result)
        if self.stage is None:
            self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + 1

    def _is_cut(self) -> bool:
        return self.trainer.should_stop and not self.trainer.fit_loop.epoch_loop.batch_progress.is_last_batch

    def on_fit_end(self) -> None:
        """Leave the Trainer as it was."""
        self._restore_limits()

    def _restore_limits(self) -> None:
        loop = self.trainer.fit_loop
        if self._limits is not None:
            loop.max_epochs, loop.epoch_loop.max_steps = self._limits
            self._limits = None

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the results of finished stages and the state of the present one."""
        present = None
        if self.stage is not None and self._has_begun:
            present = (self.stage.label, self.stage.state())
        checkpoint["stages"] = {"results": list(self._packed), "stage": present}
        # It is part of the stage's state; the Trainer would restore it before there is one.
        checkpoint["optimizer_states"] = []

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from there once the stages are asked for.

        Raises:
            InputError: a checkpoint of something else.
        """
        if "stages" not in checkpoint:
            raise InputError("the checkpoint holds no stages of a fusion; expected one that such a fit wrote")
        self._saved = checkpoint["stages"]


class _Undoing(Callback):
    """Leaves models and Trainer as they were where a fit ends by an error or an interruption."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        assert isinstance(pl_module, StagedModule)
        pl_module._restore_limits()
        pl_module.close()


class StageLoader:
    """A loader of the present stage's batches, anew in each epoch.

    Args:
        begin: gives them.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
