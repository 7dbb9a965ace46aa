"""A small model of the same structure as a large one, to be traced in its place.

The config is shrunk, not the model: sizes become small and distinct, of every kind of layer two stay. What stands for
what is then seen from both models, the real one built without memory; nobody reads a weight.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import transformers
from torch import nn

from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.infer.combined_sizes import Fields, combined_sizes
from fusionlab.symmetry.infer.endings import ended
from fusionlab.symmetry.infer.examples import guessed_inputs, pad_batches
from fusionlab.symmetry.infer.kinds import Matched, NoStandInError, matched
from fusionlab.symmetry.infer.layer_plans import LayerPlan, layer_plans, merged
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.small_sizes import Path, SmallSizes, nodes
from fusionlab.symmetry.inputs import Input

# What says nothing about a model's structure, or follows from what does.
_DROPPED = ("transformers_version", "dtype", "torch_dtype", "quantization_config", "architectures", "_name_or_path")
_DROPPED_LISTS = ("id2label", "label2id", "out_features", "out_indices", "_out_features", "_out_indices", "stage_names")
_MOST_NUMBERS = 40_000_000
# Plans for layers whose refusal by a class is taken for one of sizes.
_MOST_REFUSALS = 2
# Left as they are in the real config if a class refuses the small ones, one group after the other.
_YIELDING: tuple[tuple[Meaning, ...], ...] = (
    (),
    (Meaning.HEAD_WIDTH,),
    (Meaning.RANK,),
    (Meaning.INNER,),
    (Meaning.WINDOW,),
    (Meaning.POSITIONS,),
    (Meaning.IMAGE, Meaning.PATCH, Meaning.STRIDE, Meaning.WINDOW),
    (Meaning.EXPERTS, Meaning.CHOSEN, Meaning.GROUPS, Meaning.CHOSEN_GROUPS),
    (Meaning.TOKEN, Meaning.VOCABULARY),
    (Meaning.WIDTH, Meaning.HEAD_WIDTH, Meaning.HEADS, Meaning.KEY_VALUE_HEADS, Meaning.ROTARY, Meaning.CHANNEL_GROUPS),
)
# Choices of sizes to try: heads by fours too, as some classes split them for several devices.
_CHOICES = ((_YIELDING[0], 1), (_YIELDING[0], 4), *((yielding, 1) for yielding in _YIELDING[1:]))


class NotShrunkError(SymmetryError):
    """No small model of the same structure was found; the model itself can be traced instead."""


@dataclass(frozen=True)
class Shrunk:
    """A small model that stands for a real one.

    Attributes:
        config: of the small model, a transformers config.
        class_name: of both models.
        layers: for every name in the real model's state, in order, the name in the small one's that stands for it.
        alike: pairs of the small model's names whose axes must agree but for the layer: a layer's with those of the
            first layer of its kind. Whoever uses stand-ins for more layers than there are should see that they do.
        hints: by field of the config, dotted for sub-configs, its small and its real value; also of sizes that several
            fields give together, such as ``width of a head``.
        tokens: by small id of a token with a meaning, its real id, where these differ.
        ties: of the small model's names those that are one parameter.
        inputs: what the small model takes, as far as that can be guessed.
        real_inputs: what the real one takes.
    """

    config: Any
    class_name: str
    layers: Mapping[str, str]
    alike: Mapping[str, str]
    hints: Mapping[str, tuple[int, int]]
    tokens: Mapping[int, int] = field(default_factory=dict)
    ties: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[Input, ...] = ()
    real_inputs: tuple[Input, ...] = ()

    def build(self, seed: int = 0) -> nn.Module:
        """The small model in float32 on the CPU, in eval mode, with random weights; tied as the real one is."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _class(self.class_name)(copy.deepcopy(self.config)).eval()
        _tie(model, self.ties)
        return model


def shrink(model_or_config: Any, class_name: str | None = None) -> Shrunk:
    """A small model of the same structure.

    Args:
        model_or_config: a transformers config, or a model with one; its weights are not looked at.
        class_name: the model's class in transformers; that of the model if None.

    Raises:
        NotShrunkError: the class is none of transformers', or no small config makes a model of the same structure.
    """
    given = isinstance(model_or_config, nn.Module)
    class_name = class_name or type(model_or_config).__name__
    config = getattr(model_or_config, "config", None) if given else model_or_config
    if not isinstance(config, transformers.PretrainedConfig):
        raise NotShrunkError(f"{class_name} has no config of transformers, so that no smaller one can be made")
    real = model_or_config if given else _on_meta(class_name, config)
    fields = {name: value for name, value in config.to_dict().items() if name not in _DROPPED}
    reason = ""
    refusals = 0
    blocks = _blocks_of_heads(real)
    # A class may take heads that its blocks cut through, and then has none.
    choices = _CHOICES if blocks is None else ((_YIELDING[0], blocks), *_CHOICES)
    for plan in layer_plans(real, config, fields):
        for yielding, multiple in choices if refusals < _MOST_REFUSALS else choices[:1]:
            chosen = SmallSizes(fields, multiple).choose()
            sizes = {path: v for path, v in chosen.items() if meaning(path[-1]) not in yielding}
            try:
                found = _tried(real, config, class_name, merged(fields, sizes, plan.changes), plan)
                # What only multiples of some number suit has that number in its code.
                by_code = {} if multiple == 1 else {"heads by a number of the code's": (multiple, multiple)}
                return replace(found, hints={**found.hints, **by_code})
            except SymmetryError as error:
                reason = reason or str(error)
                # Other layers are missing, which no size mends.
                if (yielding, multiple) == choices[0] and not isinstance(error, NoStandInError):
                    break
            except Exception as error:  # a class refuses sizes in any way it likes
                reason = reason or f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        else:
            refusals += 1
    raise NotShrunkError(f"no small {class_name} of the structure of the given one could be made ({reason})")


def _blocks_of_heads(real: nn.Module) -> int | None:
    """The number of blocks that heads lie in by a module's own count, as devices that once trained it had each some."""
    counts = (getattr(module, "mp_num", None) for module in real.modules())
    return next((count for count in counts if type(count) is int and count > 1), None)


def _tried(real: Any, config: Any, class_name: str, changes: dict[Path, Any], plan: LayerPlan) -> Shrunk:
    """Build with some changes, and see that it is of the same structure and runs."""
    small_config = _changed(config, changes)
    pad_batches(small_config, class_name)
    small = _on_meta(class_name, small_config)
    if (numbers := sum(parameter.numel() for parameter in small.parameters())) > _MOST_NUMBERS:
        raise SymmetryError(f"it would have {numbers:,} parameters, not at most {_MOST_NUMBERS:,}")
    found = matched(real, small, (config, small_config))
    if plan.thorough and found.thin:
        raise SymmetryError(f"a single small layer stands for {found.thin} several")
    shrunk = Shrunk(
        small_config,
        class_name,
        found.names,
        found.alike,
        _hints(config, small_config, changes),
        _tokens(config, small_config),
        _mapped_ties(real, found),
        guessed_inputs(small),
        guessed_inputs(real),
    )
    return _ran(shrunk)


def _ran(shrunk: Shrunk) -> Shrunk:
    """The same, seen to run, as far as its inputs can be guessed; with texts that end where it takes that."""
    model: Any = shrunk.build()
    shrunk = replace(shrunk, inputs=ended(model, shrunk.inputs))
    generator = torch.Generator().manual_seed(0)
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    if shrunk.inputs:
        with torch.no_grad():
            model(**{i.name: i.random(2, generator, torch.float32) for i in shrunk.inputs})
    return shrunk


def _class(name: str) -> Any:
    found = getattr(transformers, name, None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise NotShrunkError(f"{name} is no model class of transformers, so that no smaller one can be made")
    return found


def _on_meta(class_name: str, config: Any) -> nn.Module:
    """The model without memory."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        built: nn.Module = _class(class_name)(copy.deepcopy(config)).eval()
    return built


def _changed(config: Any, changes: Mapping[Path, Any], at: Path = ()) -> Any:
    """A config of the same type with some fields changed; what follows from others is left to follow."""
    fields = {name: value for name, value in config.to_dict().items() if name not in (*_DROPPED, *_DROPPED_LISTS)}
    own = {path[-1]: value for path, value in changes.items() if path[:-1] == at}
    for name, value in vars(config).items():
        if isinstance(value, transformers.PretrainedConfig):
            fields[name] = _changed(value, changes, (*at, name))
    labels = {} if "num_labels" in own else {"num_labels": config.num_labels}
    small = {**fields, **labels, **own}
    for name in _derived(type(config), fields, small, own):
        del small[name]
    made = type(config)(**small)
    if not at:
        made._attn_implementation = "eager"
        # The fused product of experts has no float64.
        made._experts_implementation = "batched_mm"
    return made


def _derived(made: Any, fields: Fields, small: Fields, own: Mapping[str, Any]) -> list[str]:
    """Fields that the config's type computes from others, both from the real ones and from the small ones."""
    found = []
    for name in own:
        if name not in fields or isinstance(own[name], list):
            continue
        try:
            real = getattr(made(**{n: v for n, v in fields.items() if n != name}), name)
            shrunk = getattr(made(**{n: v for n, v in small.items() if n != name}), name)
        except Exception:  # a field that must be given
            continue
        if real == fields[name] and shrunk != real:
            found.append(name)
    return found


def _hints(config: Any, small: Any, changes: Mapping[Path, Any]) -> dict[str, tuple[int, int]]:
    """The small and the real value of every size that was changed."""
    found: dict[str, tuple[int, int]] = {}
    for at, fields, other in _pairs(config, small):
        for name, value in fields.items():
            new: Any = other.get(name)
            if meaning(name) == Meaning.TOKEN or (new == value and (*at, name) not in changes):
                continue
            if type(new) is int and type(value) is int:
                found[".".join((*at, name))] = (new, value)
            elif isinstance(new, (list, tuple)) and isinstance(value, (list, tuple)) and len(new) == len(value):
                for position, pair in enumerate(zip(new, value, strict=True)):
                    if all(type(size) is int for size in pair):
                        found[".".join((*at, name, str(position)))] = pair
        together, real = combined_sizes(other), combined_sizes(fields)
        found |= {".".join((*at, name)): (together[name], real[name]) for name in real if name in together}
    return found


def _tokens(config: Any, small: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for _, fields, other in _pairs(config, small):
        for name, value in fields.items():
            new = other.get(name)
            if meaning(name) == Meaning.TOKEN and type(value) is int and type(new) is int and new != value:
                found[new] = value
    return found


def _pairs(config: Any, small: Any) -> Iterator[tuple[Path, Fields, Fields]]:
    """The fields of a config and of its sub-configs, with those of the small config beside each."""
    every = small.to_dict()
    for at, fields in nodes(config.to_dict()):
        other = every
        for name in at:
            other = other[name]
        yield at, fields, other


def _groups(model: nn.Module) -> list[list[str]]:
    """The names of parameters that are one."""
    names: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def _mapped_ties(real: nn.Module, found: Matched) -> tuple[tuple[str, ...], ...]:
    mapped = (tuple(dict.fromkeys(found.names[name] for name in group)) for group in _groups(real))
    return tuple(dict.fromkeys(group for group in mapped if len(group) > 1))


def _tie(model: nn.Module, ties: tuple[tuple[str, ...], ...]) -> None:
    """Make one parameter of each group of names, and of no others."""
    together = {name: number for number, group in enumerate(ties) for name in group}
    held = model.state_dict(keep_vars=True)
    for group in _groups(model):
        for name in group[1:]:
            if name not in together or together[name] != together.get(group[0]):
                _assign(model, name, nn.Parameter(held[name].detach().clone()))
    for first, *others in ties:
        shared = model.get_parameter(first)
        for name in others:
            _assign(model, name, shared)


def _assign(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, parameter)
