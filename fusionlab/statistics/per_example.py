"""Squared gradients of single examples, summed over a batch, from one batched forward and backward pass.

The shortcut watches every operation that combines a parameter, or what was computed from parameters alone, with what
was computed from examples. There the gradient of one example is a small formula in what the batched pass has anyway:
the input and the gradient of the output (`gradient_rules`). The parameters themselves take no part in the batched
backward pass, so the matrix products of the usual backward pass are made once, only example by example.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from fusionlab.examples import example_count, take_examples
from fusionlab.statistics.gradient_rules import GradientRule, NoShortcutError
from fusionlab.statistics.operations import ALIKE, Collector, apply
from fusionlab.types import Batch

# From a model and a batch: numbers for each example, shape (batch,); the squares of the gradients of each are added.
Scores = Callable[[nn.Module, Batch], Sequence[Tensor]]


def batched(model: nn.Module, batch: Batch, scores: Scores, sums: Mapping[str, Tensor]) -> None:
    """Add every example's squared gradients, from one forward pass and one backward pass for each score.

    Args:
        model: in eval mode; not modified.
        batch: inputs by name, dimension 0 goes through the examples.
        scores: what is differentiated.
        sums: by parameter name, where the squares are added, each of the parameter's shape.

    Raises:
        NoShortcutError: the model uses a parameter in a way that `operations` has no formula for; nothing was added.
    """
    parameters = _leaves(model)
    watch = _Watch(example_count(batch), parameters)
    with watch:
        watch.mark(batch)
        found = _run(model, parameters, batch, scores)
    watch.backward(found, sums)


def one_by_one(model: nn.Module, batch: Batch, scores: Scores, sums: Mapping[str, Tensor]) -> None:
    """The same from a forward and backward pass for each example: slower, and right whatever the model does."""
    parameters = _leaves(model)
    for index in range(example_count(batch)):
        found = _run(model, parameters, take_examples(batch, torch.tensor([index])), scores)
        for score, is_last in _with_last(found):
            gradients = torch.autograd.grad(
                score.sum(), list(parameters.values()), retain_graph=not is_last, allow_unused=True
            )
            for name, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    sums[name].addcmul_(gradient, gradient)


def _with_last(scores: Sequence[Tensor]) -> Iterator[tuple[Tensor, bool]]:
    """Every score that depends on a parameter, and whether it is the last one."""
    scores = [score for score in scores if score.requires_grad]
    return ((score, place + 1 == len(scores)) for place, score in enumerate(scores))


class _Scored(nn.Module):
    """A model and its scores as one module, for `functional_call` to put other parameters in."""

    def __init__(self, model: nn.Module, scores: Scores) -> None:
        super().__init__()
        self.model = model
        self.scores = scores

    def forward(self, batch: Batch) -> Sequence[Tensor]:
        return self.scores(self.model, batch)


def _leaves(model: nn.Module) -> dict[str, Tensor]:
    """Every floating-point parameter once, in float32 or better, to differentiate by; the model keeps its own."""
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.is_floating_point()}
    return {name: _precise(parameter).detach().requires_grad_() for name, parameter in parameters.items()}


def _run(model: nn.Module, parameters: Mapping[str, Tensor], batch: Batch, scores: Scores) -> Sequence[Tensor]:
    buffers = {name: _precise(buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    state = {f"model.{name}": tensor for name, tensor in (buffers | dict(parameters)).items()}
    with torch.enable_grad():
        return functional_call(_Scored(model, scores), state, (batch,))


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _Watch(TorchFunctionMode, Collector):
    """Sees every torch function of a forward pass, and knows which tensors depend on the examples.

    A tensor that requires a gradient and does not depend on them was computed from parameters alone: it is *shared*.
    Autograd keeps how; only an operation that combines it with an example's tensor is replaced.

    Args:
        examples: how many there are.
        parameters: by name, leaves.
    """

    def __init__(self, examples: int, parameters: Mapping[str, Tensor]) -> None:
        TorchFunctionMode.__init__(self)
        Collector.__init__(self, examples)
        self.parameters = parameters
        self.names = {id(parameter): name for name, parameter in parameters.items()}
        self.marked = WeakTensorKeyDictionary()

    def mark(self, values: Any) -> None:
        """From now on these depend on the examples."""
        for value in tree_leaves(values):
            if isinstance(value, Tensor):
                self.marked[value] = True

    def is_shared(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.requires_grad and value not in self.marked

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if not any(tensor in self.marked for tensor in tensors):
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "").strip("_")
        if name in ALIKE and self.is_shared(args[0]):
            # The other tensor gives a type or a shape, and no number.
            return func(*args, **kwargs)
        if torch.is_grad_enabled() and any(self.is_shared(tensor) for tensor in tensors):
            result = apply(self, func, name, args, kwargs)
        else:
            result = func(*args, **kwargs)
        self.mark(args[0] if name == "setitem" else result)
        return result

    def backward(self, scores: Sequence[Tensor], sums: Mapping[str, Tensor]) -> None:
        """Run the backward passes and add all squares."""
        reached = {id(rule): self._reached(rule.shared) for rule in self.rules}
        counts = Counter(name for names in reached.values() for name in names)
        # Used once, as it is: its squares can be added as soon as its gradient is there, and nothing is kept for later.
        alone = {
            id(rule): sums[self.names[id(rule.shared)]]
            for rule in self.rules
            if id(rule.shared) in self.names and counts[self.names[id(rule.shared)]] == 1
        }

        def add_at_once(rule: GradientRule) -> None:
            if id(rule) in alone:
                rule.add_squares(alone[id(rule)])
                rule.gradient = None

        self.when_received = add_at_once
        for score, is_last in _with_last(scores):
            score.sum().backward(retain_graph=not is_last)
            self._add_others([rule for rule in self.rules if rule.gradient is not None], sums)
            for rule in self.rules:
                rule.gradient = None

    def _add_others(self, rules: Sequence[GradientRule], sums: Mapping[str, Tensor]) -> None:
        """Parameters that are used more than once, or in part through what is computed of them: sum, then square."""
        direct = defaultdict(list)
        for rule in rules:
            if id(rule.shared) in self.names:
                direct[self.names[id(rule.shared)]].append(rule)
        computed = [rule for rule in rules if id(rule.shared) not in self.names]
        for example in range(self.examples):
            through = self._pulled_back(computed, example)
            for name in {**direct, **through}:
                one = through.pop(name, None)
                one = torch.zeros_like(self.parameters[name]) if one is None else one.contiguous().clone()
                for rule in direct[name]:
                    rule.add(one, example)
                sums[name].addcmul_(one, one)

    def _pulled_back(self, rules: Sequence[GradientRule], example: int) -> dict[str, Tensor]:
        """One example's gradients of parameters through what was computed from them alone."""
        names = list({name: None for rule in rules for name in self._reached(rule.shared)})
        if not names:
            return {}
        gradients = []
        for rule in rules:
            gradients.append(torch.zeros_like(rule.shared))
            rule.add(gradients[-1], example)
        found = torch.autograd.grad(
            [rule.shared for rule in rules],
            [self.parameters[name] for name in names],
            gradients,
            retain_graph=True,
            allow_unused=True,
        )
        return {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}

    def _reached(self, shared: Tensor) -> list[str]:
        """The names of the parameters that a shared tensor was computed from, or that it is."""
        if id(shared) in self.names:
            return [self.names[id(shared)]]
        names, seen, nodes = [], set(), [shared.grad_fn]
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if hasattr(node, "variable"):
                if id(node.variable) not in self.names:
                    raise NoShortcutError("a tensor that depends on examples was not seen to")
                names.append(self.names[id(node.variable)])
            nodes.extend(following for following, _ in node.next_functions)
        return names
