"""A model's graph of aten operations: parameters in, outputs out, in float64."""

from __future__ import annotations

import copy
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fusionlab.symmetry.float64 import InFloat64, take_plain_products
from fusionlab.symmetry.infer.branches import Branches
from fusionlab.symmetry.infer.masks import is_mask
from fusionlab.symmetry.stacks import Stacks

# Share of positive entries from which a vector is one of gains.
MOSTLY = 0.75
SMALLER = (torch.float32, torch.bfloat16, torch.float16)
# What a model is for, by its outputs' names, first come first; all else that it returns may change its basis.
KEPT = (
    ("logits", "logits_per_image", "logits_per_text"),
    ("image_embeds", "text_embeds"),
    ("reconstruction",),
    ("last_hidden_state", "pooler_output"),
)
_INSIDE = re.compile(r"(^|_)(hidden_states|attentions)(\.|$)")
ASKED = {"use_cache": False, "return_dict": True, "output_hidden_states": True, "output_attentions": True}


class TraceError(Exception):
    """A model cannot be traced; one sentence says why."""


@dataclass(frozen=True)
class Traced:
    """A model as a function of its parameters, for one batch of inputs.

    Attributes:
        graph: operations of aten; its arguments are the parameters, in the order of `state`, then the inputs.
        state: random parameters and persistent float buffers by name, in float64; tied ones once.
        inputs: by the name that the forward gives them.
        outputs: names of what the graph returns, those that must stay as they are first.
        kept: how many those are.
        branches: sentences on where the forward followed the values of its tensors.
        stacks: by name of a tensor in `state`, the model's parameters that it is made of.
        run: the model itself as a function of `state`, where the graph may hold for one choice of experts only.
    """

    graph: fx.GraphModule
    state: dict[str, Tensor]
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    kept: int
    branches: tuple[str, ...] = ()
    stacks: Stacks = field(default_factory=dict)
    run: Callable[[Mapping[str, Tensor]], Tensor] | None = None

    @property
    def unread(self) -> tuple[str, ...]:
        """The parameters that enter no output."""
        placeholders = (node for node in self.graph.graph.nodes if node.op == "placeholder")
        return tuple(name for name, node in zip(self.state, placeholders, strict=False) if not node.users)

    @torch.no_grad()
    def __call__(self, state: Mapping[str, Tensor]) -> Tensor:
        """The outputs that must stay, flattened and joined."""
        return self.told(state) if self.run is None else self.run(state)

    def told(self, state: Mapping[str, Tensor]) -> Tensor:
        """The same, with its gradient."""
        found = self.graph.forward(*(state[name] for name in self.state), *self.inputs.values())
        return torch.cat([tensor.double().flatten() for tensor in found[: self.kept]])


def trace(model: nn.Module, inputs: Mapping[str, Tensor], seed: int = 0) -> Traced:
    """The graph of a model, without side effects.

    Every cast to a smaller float is one to float64, so that what is shown about the graph is shown to rounding.

    Args:
        model: any module on the CPU; not modified. Its weights are not looked at.
        inputs: a batch by the forward's argument names.
        seed: of the random parameters.

    Raises:
        TraceError: the forward fails, or follows the values of its parameters.
    """
    plain = Plain(model)
    generator = torch.Generator().manual_seed(seed)
    state = plain.generic(generator)
    values = in_float64(inputs)
    told: dict[str, Any] = {}

    def forward(options: Mapping[str, Any]) -> Any:
        own = copy.deepcopy(plain, _empty(plain.model))

        def run(*arguments: Tensor) -> list[Tensor]:
            given = dict(zip(state, arguments, strict=False))
            batch = dict(zip(values, arguments[len(state) :], strict=True))
            with Branches() as branches:
                named = own.outputs(given, {**batch, **options})
            told["branches"] = branches.told()
            kept = kept_outputs(tuple(named))
            told["outputs"], told["kept"] = (*kept, *(name for name in named if name not in kept)), len(kept)
            return [named[name] for name in told["outputs"]]

        return run

    graph = _graph(forward, _options(plain.model), (*state.values(), *values.values()))
    if not told["kept"]:
        raise TraceError("its forward returns no tensor; expected a forward that returns one, or several by name")
    _in_float64(graph)
    return Traced(graph, state, values, told["outputs"], told["kept"], told["branches"])


class Plain:
    """A float64 copy of a model that computes by plain operations, as a function of parameters and inputs.

    Attributes:
        model: the copy, in eval mode; attention and experts run without fused kernels.
        state: its parameters and persistent float buffers by name; tied ones once.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: nn.Module = copy.deepcopy(model, _empty(model)).double().eval()
        take_plain_products(self.model, attention=True)
        for module in self.model.modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and value.dtype in SMALLER:  # which nobody registered
                    vars(module)[name] = value.double()
            # Not every forward takes the option.
            config: Any = getattr(module, "config", None)
            if hasattr(config, "use_cache"):
                config.use_cache = False
        persistent = set(self.model.state_dict())
        self.state = {name: p.detach() for name, p in self.model.named_parameters()}
        self.state |= {n: b for n, b in self.model.named_buffers() if n in persistent and b.is_floating_point()}
        self._masks = {name for name, buffer in self.model.named_buffers() if name in self.state and is_mask(buffer)}
        self._others = {name: buffer for name, buffer in self.model.named_buffers() if name not in self.state}

    def generic(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Its state with `generic` values; masks, which code compares with their numbers, as they are.

        Args:
            generator: of the values.
        """
        return {name: x if name in self._masks else generic(x, generator) for name, x in self.state.items()}

    def copied(self) -> Plain:
        """The same with modules of its own, which may remember what they are given, and the same tensors."""
        tensors: list[Tensor] = [*self.model.parameters(), *self.model.buffers()]
        return copy.deepcopy(self, {**_empty(self.model), **{id(x): x for x in (*tensors, *self.state.values())}})

    def outputs(self, state: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Everything the forward returns, by the path to it."""
        with InFloat64():
            out = torch.func.functional_call(self.model, (dict(state), self._others), kwargs=dict(inputs))
        return dict(named_tensors("", out))

    @torch.no_grad()
    def kept(self, state: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> Tensor:
        """The outputs that must stay, flattened and joined."""
        return self.told(state, inputs)

    def told(self, state: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> Tensor:
        """The same, with its gradient."""
        caches = "use_cache" in inspect.signature(self.model.forward).parameters
        named = self.outputs(state, {**inputs, **({"use_cache": False} if caches else {})})
        return torch.cat([named[name].double().flatten() for name in kept_outputs(tuple(named))])


def _empty(model: nn.Module) -> dict[int, Any]:
    """New mappings for the empty ones of all modules, as `copy.deepcopy` notes what it has copied.

    A module has a dozen, for hooks, which are most of what there is to copy. So are tensors that a module computed of
    its parameters (as those of weight normalisation by hooks), which cannot be copied with what they came from.
    """
    held = [value for module in model.modules() for value in vars(module).values()]
    made = {id(value): value.detach().clone() for value in held if isinstance(value, Tensor) and not value.is_leaf}
    return made | {id(value): type(value)() for value in held if type(value) in (dict, OrderedDict) and not value}


def in_float64(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs with numbers in float64; ids and masks as they are."""
    return {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}


def _options(model: nn.Module) -> list[dict[str, Any]]:
    """Keyword arguments that ask the forward for outputs, most first."""
    known = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    if config is None:
        return [{}]
    rest = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    # Models whose forward takes **kwargs read output_attentions from there.
    everything = {
        name: value
        for name, value in ASKED.items()
        if name in known or (rest and name.startswith(("output", "return")))
    }
    least = {name: value for name, value in everything.items() if name in ("use_cache", "return_dict")}
    return [everything, {**least, **{n: v for n, v in everything.items() if n == "output_hidden_states"}}, least, {}]


def _graph(forward: Any, options: list[dict[str, Any]], arguments: tuple[Tensor, ...]) -> fx.GraphModule:
    reason = ""
    # make_fx notes an empty tensor of every value's shape, in a mode of which it makes a new one each time unless there
    # is one: nobody asks for these here, and they would take a third of the time.
    shapes = _Shapeless()
    for chosen in options:
        for wrap in (torch.func.functionalize, lambda run: run):
            try:
                with torch.no_grad(), tracing(TracingContext(shapes)):
                    return make_fx(wrap(forward(chosen)), tracing_mode="real", _error_on_data_dependent_ops=False)(
                        *arguments
                    )
            except Exception as error:  # anything may be raised by a model's own code
                reason = reason or f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    raise TraceError(f"the model cannot be traced ({reason})")


class _Shapeless(FakeTensorMode):
    """A mode for shapes in which every empty tensor is the same one."""

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=True)
        self._empty: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_made = func is torch.ops.aten.empty_strided.default
        if self._empty is not None and (is_made or (args and args[0] is self._empty)):
            return self._empty  # torch detaches what it did not make itself
        out: Any = super().__torch_dispatch__(func, types, args, kwargs)
        if is_made:
            self._empty = out
        return out


def _in_float64(graph: fx.GraphModule) -> None:
    """Make casts and constants of smaller floats those of float64."""
    for node in graph.graph.nodes:
        if node.kwargs.get("dtype") in SMALLER:
            node.kwargs = {**node.kwargs, "dtype": torch.float64}
        node.args = tuple(torch.float64 if isinstance(a, torch.dtype) and a in SMALLER else a for a in node.args)
    for name, value in list(vars(graph).items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            setattr(graph, name, value.double())
    graph.graph.eliminate_dead_code()
    graph.recompile()


def generic(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random values in a parameter's place, in float64.

    Initial ones and zeros would admit symmetries that trained models do not have. Mostly positive vectors (gains,
    variances) are positive.
    """
    if tensor.ndim >= 2:
        fan_in = tensor[0].numel() if tensor.shape[0] > 1 else 1
        return torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * fan_in**-0.5
    values = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    return values + 0.5 if float((tensor > 0).double().mean()) > MOSTLY else values - 0.5


def kept_outputs(names: tuple[str, ...]) -> tuple[str, ...]:
    """The outputs that no change of basis may touch: what a model is for, or all but what layers hand on."""
    for kind in KEPT:
        found = tuple(name for name in names if name in kind or (kind[0] == "logits" and "logits" in name))
        if found:
            return found
    return tuple(name for name in names if not _INSIDE.search(name)) or names


def named_tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside what a model returned, by the path to it: ``logits``, ``hidden_states.0``."""
    if isinstance(value, Tensor):
        yield name or "output", value
    elif hasattr(value, "items"):
        for key, part in value.items():
            yield from named_tensors(f"{name}.{key}" if name else str(key), part)
    elif is_dataclass(value):
        for part in fields(value):
            yield from named_tensors(f"{name}.{part.name}" if name else part.name, getattr(value, part.name))
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from named_tensors(f"{name}.{index}" if name else f"output.{index}", part)
