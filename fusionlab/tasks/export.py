"""After training: the model as an ordinary checkpoint folder."""

import copy
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from fusionlab import checkpoints
from fusionlab.atomic import refuse_existing, require_space, scratch_folder
from fusionlab.checkpoints.lightning_file import STATE, read_archive
from fusionlab.data.contract import described
from fusionlab.dtypes import stored_size
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.symmetry.wrappers import unwrapped

_PREFIX = "model."


class ExportCheckpoint(Callback):
    """Write the trained model as a checkpoint folder in its library's own format when training ends.

    Written is the best model if the Trainer's ModelCheckpoint monitors a metric, else the last one.
    """

    def __init__(self, output: str, overwrite: bool = False) -> None:
        """Name the folder.

        Args:
            output: the folder to write.
            overwrite: whether a folder that exists may be replaced.
        """
        self.output = expanded(output)
        self.overwrite = overwrite
        self.written = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse an output that exists before training starts, not after hours of it.

        Raises:
            InputError: the folder exists and may not be replaced, its disk has no space for the model, or the task has
                no model to export.
        """
        if stage != "fit":
            return
        model = getattr(pl_module, "model", None)
        if not isinstance(model, nn.Module):
            raise InputError(f"{type(pl_module).__name__} has no attribute `model`, which ExportCheckpoint would write")
        refuse_existing(self.output, self.overwrite)
        require_space(self.output, stored_size(model))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the folder, on the first process only."""
        # A trial run of a few batches is not a model that anybody wants to keep.
        if not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        trained: nn.Module = pl_module.model  # type: ignore[assignment]
        model: Any = copy.deepcopy(unwrapped(trained)).cpu()
        best = best_weights(trainer)
        if best is not None:
            state = read_archive(Path(best))[STATE]
            model.load_state_dict(
                {name.removeprefix(_PREFIX): value for name, value in state.items() if name.startswith(_PREFIX)}
            )
        like = getattr(pl_module, "side_files", None)
        tokenizer = described(getattr(trainer, "datamodule", None)).tokenizer
        with scratch_folder() as folder:
            if like is None and tokenizer is not None:
                # A fresh model reads the tokens of the tokenizer that it was trained with, and of no other.
                like = folder / "with_tokenizer"
                checkpoints.save(model.eval(), like)
                tokenizer.save_pretrained(like)
            checkpoints.save(model.eval(), self.output, like=like, overwrite=self.overwrite)
        self.written = True


def best_weights(trainer: Trainer) -> str | None:
    """Path of the best checkpoint by the first metric that is monitored; None where none is monitored or written."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint) and callback.monitor and callback.best_model_path:
            return callback.best_model_path
    return None
