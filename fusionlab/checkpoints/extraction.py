"""The difference of two models as a LoRA adapter: each layer's best change of a low rank, and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fusionlab.checkpoints.adapters import PREFIX, SAFETENSORS, Adapter, placed
from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.checkpoints.files import ADAPTER_CONFIG
from fusionlab.checkpoints.stacks import extracted_stack, is_stacked, like_experts, merged_stack
from fusionlab.checkpoints.truncation import truncated, truncated_product
from fusionlab.checkpoints.wrapped import wrapped_places, written_factors
from fusionlab.errors import InputError

Layer = tuple[str, nn.Module]
Layers = Callable[[Sequence[Layer]], Iterable[Layer]]

# Layers that PEFT knows how to change by two factors.
FACTORED = (nn.Linear, nn.Embedding, Conv1D)


@dataclass(frozen=True)
class Extracted:
    """The difference of a model from its base model.

    Attributes:
        changes: by the name of the layer.
        captured: by the name of the layer, the share of its difference's norm that the change has, from 0 to 1.
        saved: whole modules that differ in another way: their parameters by name.
        biases: of layers with a change that differ too, by name.
        modules: names of the modules in `saved`.
        embeddings: layers with a change that are embeddings.
        differs: anything does.
        is_turned: some layers are GPT-2's Conv1D, whose weights are stored as ``(in, out)``.
        stacks: changes of parameters by name, such as experts in a stack, in the order in which the class has them.
        by_name: layers whose weight must be named as a parameter too, since PEFT would take their names for those that
            experts once had.
    """

    changes: Mapping[str, Change] = field(repr=False)
    captured: Mapping[str, float] = field(repr=False)
    saved: Mapping[str, Tensor] = field(repr=False)
    biases: Mapping[str, Tensor] = field(repr=False)
    modules: tuple[str, ...]
    embeddings: frozenset[str]
    is_turned: bool
    differs: bool
    stacks: Mapping[str, Stack] = field(default_factory=dict, repr=False)
    by_name: frozenset[str] = frozenset()


def merged_changes(
    adapters: Sequence[Adapter], weights: Sequence[float], model: nn.Module, rank: int
) -> Extracted | None:
    """The weighted mean of adapters of one base model as an adapter, from their factors alone.

    Args:
        adapters: of one base model.
        weights: one for each, summing to 1.
        model: of the class that they change.
        rank: of every change.

    Returns:
        None where an adapter has more than products of two small factors.
    """
    if any(one.saved or one.is_tied for one in adapters):
        return None
    found = [placed(one, model, one.base) for one in adapters]
    names = dict.fromkeys(name for own_changes, _ in found for name in own_changes)
    changes, captured = {}, {}
    for name in names:
        own = [(weight, one[name]) for weight, (one, _) in zip(weights, found, strict=True) if name in one]
        if any(one.magnitude is not None or one.bias is not None or one.down.ndim > 2 for _, one in own):
            return None
        up = torch.cat([weight * one.scale * one.up.double() for weight, one in own], dim=1)
        down = torch.cat([one.down.double() for _, one in own])
        if len(down) >= min(up.shape[0], down.shape[1]):
            return None
        first, second, captured[name] = truncated_product(up, down, rank)
        changes[name] = Change(first, second, 1.0)
    stacks: dict[str, Stack] = {}
    in_order = [name for name, _ in model.named_parameters() if any(name in one for _, one in found)]
    for name in in_order:
        mean = merged_stack([(w, one[name]) for w, (_, one) in zip(weights, found, strict=True) if name in one], rank)
        if mean is None:
            return None
        stacks[name], captured[name] = mean
    kinds = {name: model.get_submodule(name) for name in names}
    return Extracted(
        changes,
        captured,
        {},
        {},
        (),
        embeddings=frozenset(name for name, kind in kinds.items() if isinstance(kind, nn.Embedding)),
        differs=bool(changes or stacks),
        is_turned=any(isinstance(kind, Conv1D) for kind in kinds.values()),
        stacks=stacks,
        by_name=like_experts(model, changes),
    )


def extract(
    model: nn.Module, base: Mapping[str, Tensor], rank: int, whole: Iterable[str] = (), layers: Layers = list
) -> Extracted:
    """The difference of a model from its base model.

    Args:
        model: of transformers.
        base: the base model's state by name; what is missing, or has another shape, is saved whole.
        rank: of every change, at least 1.
        whole: names of modules, or ends of them, that are saved whole, whether they differ or not.
        layers: goes through the layers that are decomposed, to show how far it is.

    Raises:
        InputError: a parameter that lies in no module of the model differs, which an adapter has no place for.
    """
    state = model.state_dict()
    differing = {name for name, tensor in state.items() if not _is_same(tensor, base.get(name))}
    changes: dict[str, Change] = {}
    captured: dict[str, float] = {}
    saved: dict[str, Tensor] = {}
    biases: dict[str, Tensor] = {}
    modules: list[str] = []
    factored: list[tuple[str, nn.Module]] = []
    stacked: list[str] = []
    ends = set(whole)
    for name, module in model.named_modules():
        if any(name.startswith(f"{module}.") for module in modules):
            continue
        if name.rpartition(".")[2] in ends:
            modules.append(name)
            saved |= {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
            continue
        own = {key for key in _own(module) if f"{name}.{key}".removeprefix(".") in differing}
        weight = base.get(f"{name}.weight")
        fits = _is_factored(module) and weight is not None and weight.shape == module.weight.shape
        if not own:
            continue
        if name and own == {"bias"}:
            # PEFT saves every bias by its name: that of a head too, which may be its last layer's as well (BERT), and
            # whose weight may be the embedding's (ESM).
            biases[f"{name}.bias"] = state[f"{name}.bias"]
        elif fits and own <= {"weight", "bias"}:
            factored.append((name, module))
            biases |= {f"{name}.bias": state[f"{name}.bias"]} if "bias" in own else {}
        elif name and is_stacked(module, own, {key: base.get(f"{name}.{key}") for key in own}):
            stacked += [f"{name}.{key}" for key, _ in module.named_parameters(recurse=False) if key in own]
        elif not name:
            raise InputError(
                f"{sorted(own)[0]} differs and lies in no module, for which an adapter has no place; expected none such"
            )
        else:
            modules.append(name)
            saved |= {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
    products: dict[int, tuple[Tensor, Tensor, float]] = {}
    for name, module in layers(factored):
        turned = isinstance(module, nn.Embedding | Conv1D)
        # One parameter may be two layers' weight: both change, each in its own orientation.
        if (known := products.get(id(module.weight))) is None:
            # In float32 at least: a narrower type would round the difference, which has more digits than the weights.
            wide = torch.promote_types(state[f"{name}.weight"].dtype, torch.float32)
            difference = (state[f"{name}.weight"].double() - base[f"{name}.weight"].double()).to(wide)
            known = products[id(module.weight)] = truncated(difference, rank)
        down, up, captured[name] = known
        changes[name] = Change(up.T, down.T, 1.0) if turned else Change(down, up, 1.0)
    stacks: dict[str, Stack] = {}
    for name, module in layers([(name, model.get_submodule(name.rpartition(".")[0])) for name in stacked]):
        stacks[name], captured[name] = extracted_stack(state[name], base[name], module, rank)
    kinds = dict(factored)
    return Extracted(
        changes,
        captured,
        saved,
        biases,
        tuple(modules),
        embeddings=frozenset(name for name in changes if isinstance(kinds[name], nn.Embedding)),
        differs=bool(differing),
        is_turned=any(isinstance(module, Conv1D) for module in kinds.values()),
        stacks=stacks,
        by_name=like_experts(model, changes),
    )


def _is_factored(module: nn.Module) -> bool:
    """True for a layer whose change PEFT applies as factors; it would look tables of positions (BART) up by itself."""
    looks_up = type(module).forward is nn.Embedding.forward or hasattr(module, "embed_scale")
    return isinstance(module, FACTORED) and (looks_up or not isinstance(module, nn.Embedding))


def _own(module: nn.Module) -> list[str]:
    """The names of a module's own parameters and buffers that are stored."""
    names = [name for name, _ in module.named_parameters(recurse=False)]
    return names + [name for name, _ in module.named_buffers(recurse=False) if name in module.state_dict()]


def _is_same(tensor: Tensor, other: Tensor | None) -> bool:
    if other is None or other.shape != tensor.shape:
        return False
    # What is less than the narrower type can tell is a change too.
    wide = torch.promote_types(tensor.dtype, other.dtype)
    return torch.equal(tensor.to(wide), other.to(wide))


def write_adapter(found: Extracted, folder: Path, base: str, task: str | None) -> None:
    """Write a difference as PEFT stores adapters: factors in float32, whole modules as they are.

    Args:
        found: the difference.
        folder: an empty folder.
        base: path or hub id of the base model.
        task: what the model is for, as PEFT names it, or None.
    """
    called = {name: f"{name}.weight" if name in found.by_name else name for name in found.changes}
    by_name = [called[name] for name in found.changes if name in found.by_name]
    ranks = {called[name]: change.down.shape[0] for name, change in found.changes.items()}
    ranks |= {name: stack.rank for name, stack in found.stacks.items()}
    most = max(ranks.values(), default=1)
    fewer = {name.replace(".", r"\."): rank for name, rank in ranks.items() if rank < most}
    config: dict[str, Any] = {
        "base_model_name_or_path": base, "bias": "all" if found.biases else "none", "fan_in_fan_out": found.is_turned,
        "inference_mode": True, "init_lora_weights": True, "lora_alpha": most, "alpha_pattern": fewer,
        "rank_pattern": fewer,
        "lora_dropout": 0.0, "modules_to_save": list(found.modules) or None, "peft_type": "LORA", "r": most,
        "target_modules": [name for name in found.changes if name not in found.by_name], "task_type": task,
        "target_parameters": [*found.stacks, *by_name] or None,
    }  # fmt: skip
    tensors = {f"{PREFIX}{name}": tensor for name, tensor in found.saved.items()}
    for name, tensor in found.biases.items():
        layer = name.removesuffix(".bias")
        place = f"{layer}.base_layer.bias" if layer in found.changes else name
        tensors[f"{PREFIX}{place}"] = tensor
    for name, change in found.changes.items():
        embedding = name in found.embeddings
        ends = (".lora_embedding_A", ".lora_embedding_B") if embedding else (".lora_A.weight", ".lora_B.weight")
        for end, factor in zip(ends, (change.down, change.up), strict=True):
            tensors[f"{PREFIX}{name}{end}"] = factor
    for place, stack in zip(wrapped_places(found.stacks), found.stacks.values(), strict=True):
        for end, factor in zip((".lora_A.weight", ".lora_B.weight"), written_factors(stack), strict=True):
            tensors[f"{PREFIX}{place}{end}"] = factor.float()
    # Under each of its names, what is one parameter in the model (embeddings of encoder and decoder).
    seen: set[int] = set()
    for name, tensor in tensors.items():
        whole = tensor.contiguous()
        tensors[name] = whole.clone() if whole.data_ptr() in seen else whole
        seen.add(whole.data_ptr())
    save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
