"""Checkpoints of the timm library: a folder in timm's own hub format, which ``timm.create_model`` reads."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.atomic import scratch_folder
from fusionlab.checkpoints.files import (
    CONFIG,
    read_config,
    read_safetensors,
    weight_files,
)
from fusionlab.checkpoints.parameters import differences, refuse_differences
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import Stored, no_larger, refuse_absurd
from fusionlab.checkpoints.weights import read_headers, read_pickled_state, refuse_integers
from fusionlab.dtypes import main_dtype
from fusionlab.errors import InputError, first_line

ARCHITECTURE = "architecture"


def is_timm(model: nn.Module) -> bool:
    """True if `model` was made by timm's factory."""
    return hasattr(model, "pretrained_cfg") and type(model).__module__.startswith("timm.")


def read_folder(folder: Path) -> nn.Module:
    """Load a timm checkpoint folder, each parameter in the dtype it is stored in.

    Args:
        folder: a folder with timm's ``config.json`` and ``model.safetensors`` or ``pytorch_model.bin``.

    Returns:
        The model, in eval mode.

    Raises:
        InputError: anything missing, unknown, damaged, or weights that are not exactly the model's.
    """
    config = read_config(folder)
    files = weight_files(folder)
    if files[0].suffix != ".safetensors":
        return rebuild(config, read_pickled_state(files), files[0])
    read_headers(files)  # finds damage first, and a parameter that is in two files
    state: dict[str, Tensor] = {}
    for file in files:
        state |= read_safetensors(file)
    return rebuild(config, state, files[0])


def rebuild(config: dict[str, Any], state: dict[str, Tensor], source: Path) -> nn.Module:
    """Build the model that timm's description names and give it exactly these weights.

    timm's own loader would resize position tables and drop classifiers that do not fit; here they are refused.

    Args:
        config: the content of timm's ``config.json``.
        state: tensors by parameter name.
        source: the file they come from, for messages.

    Returns:
        The model, in eval mode.

    Raises:
        InputError: unknown architecture, or parameters that are not exactly the model's.
    """
    model = build(config, source, Stored.of(state.values()))
    refuse_differences(source, config[ARCHITECTURE], *differences(model, state))
    integers = {name: tensor.ndim for name, tensor in state.items() if not tensor.is_floating_point()}
    refuse_integers(source, integers, model.state_dict())
    model.to(main_dtype(state))
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(state[name].dtype)
    model.load_state_dict(state)
    _refuse_unwritable(model, source)
    return model.eval()


def _refuse_unwritable(model: nn.Module, source: Path) -> None:
    """Refuse a config that timm builds a model from and cannot write again, before any work."""
    try:
        describe(model)
    except OSError:
        # Of the system; the description is written into a scratch folder.
        raise
    except Exception as error:
        raise InputError(f"{source}: timm cannot write its config again ({first_line(error)})") from error


def build(config: dict[str, Any], source: Path, stored: Stored) -> nn.Module:
    """Build the model that timm's description names, with fresh weights.

    Args:
        config: the content of timm's ``config.json``.
        source: the file it comes from, for messages.
        stored: how much there is to replace them with; a model that is far larger is refused before memory is taken.

    Returns:
        The model.

    Raises:
        InputError: unknown architecture, arguments that it refuses, or that ask for far more than is stored.
    """
    import timm  # noqa: PLC0415 - takes half a second, which models of transformers do without

    architecture = config.get(ARCHITECTURE)
    if not isinstance(architecture, str) or not timm.is_model(architecture):
        raise InputError(f"{source}: architecture {architecture!r} is not one that timm {timm.__version__} knows")
    refuse_absurd(config, source)
    with scratch_folder() as description, quiet():
        try:
            text = json.dumps(config)
        except (TypeError, ValueError) as error:
            # That of a Lightning file was pickled.
            raise InputError(f"{source}: its config holds more than plain values ({first_line(error)})") from error
        (description / CONFIG).write_text(text, encoding="utf-8")
        try:
            with no_larger(stored, source):
                timm.create_model(f"local-dir:{description}", pretrained=False)
        except InputError:
            raise
        except Exception:
            # Older versions of timm cannot build all of their models without memory; what is wrong is told below.
            pass
        try:
            # Building draws random weights that are replaced; the caller's random numbers stay where they were.
            with torch.random.fork_rng(devices=[]):
                return timm.create_model(f"local-dir:{description}", pretrained=False)
        except Exception as error:
            # Each architecture checks its arguments in its own way; all of them mean that the description is wrong.
            raise InputError(
                f"{source}: timm cannot build {architecture} as its config describes it ({first_line(error)})"
            ) from error


def describe(model: nn.Module) -> dict[str, Any]:
    """The config that timm needs to build `model` again, as the content of its ``config.json``.

    Args:
        model: a timm model.

    Returns:
        A plain mapping.
    """
    from timm.models._hub import save_config_for_hf  # noqa: PLC0415

    with scratch_folder() as folder, quiet():
        path = folder / CONFIG
        save_config_for_hf(model, str(path))
        return json.loads(path.read_text(encoding="utf-8"))


def write_folder(model: nn.Module, output: Path, like: Path | None = None) -> None:
    """Write a timm model into an empty folder.

    Args:
        model: the model.
        output: an empty folder.
        like: a timm checkpoint folder; what its config says beyond what timm writes (label names, a licence) is kept.
    """
    from timm.models import save_for_hf  # noqa: PLC0415

    with quiet():
        save_for_hf(model, str(output), safe_serialization=True)
    if like is None:
        return
    path = output / CONFIG
    written, before = json.loads(path.read_text(encoding="utf-8")), read_config(like)
    if written.get("num_classes") == before.get("num_classes"):  # else its label names would be wrong
        path.write_text(json.dumps({**before, **written}, indent=2), encoding="utf-8")
