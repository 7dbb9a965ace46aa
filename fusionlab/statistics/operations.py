"""Operations of a forward pass that combine shared tensors with examples, and the gradient rules that each needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fusionlab.statistics.gradient_rules import (
    Broadcast,
    ChannelBias,
    Convolution,
    Gain,
    GradientRule,
    Lookup,
    NoShortcutError,
    Product,
)

# Operations on numbers in their places, which broadcast.
ELEMENTWISE = {f"{prefix}{name}" for name in ("add", "sub", "mul", "div", "truediv") for prefix in ("", "r", "i")}
ELEMENTWISE |= {"where", "masked_fill"}
# Operations that take a type or a shape from another tensor, and no number.
ALIKE = {"type_as", "to", "expand_as", "view_as", "reshape_as"}


class Collector(ABC):
    """Collects the gradient rules of a forward pass.

    Args:
        examples: how many there are.
    """

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.rules: list[GradientRule] = []
        # What depends on examples need not depend on anything that is differentiated by: this makes it.
        self.anchor = torch.zeros((), requires_grad=True)
        self.when_received: Callable[[GradientRule], object] = lambda rule: None

    @abstractmethod
    def is_shared(self, value: Any) -> bool:
        """True for a tensor that was computed from parameters alone."""

    def hand_over(self, rule: GradientRule, gradient: Tensor) -> None:
        """Give a rule the gradient of its operation's output."""
        with torch.no_grad():
            rule.receive(gradient)
            self.when_received(rule)

    def at(self, output: Tensor, *rules: GradientRule) -> Tensor:
        """The output to go on with, after rules were noted for the tensors that are shared.

        Args:
            output: of an operation on shared tensors and examples.
            rules: one for each tensor that may be shared.
        """
        self._check_apart(output.shape)
        rules = tuple(rule for rule in rules if self.is_shared(rule.shared))
        self.rules.extend(rules)
        output = output if output.requires_grad else output + self.anchor.to(output)
        for rule in rules:
            output.register_hook(lambda gradient, rule=rule: self.hand_over(rule, gradient))
        return output

    def stand_in(self, shared: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A shared tensor broadcast to a shape, whose own gradient is watched instead of the output's."""
        self._check_apart(shape)
        rule = Broadcast(shared, self.examples)
        self.rules.append(rule)
        return _StandIn.apply(self.anchor, shared.detach().expand(shape), lambda g: self.hand_over(rule, g))

    def _check_apart(self, shape: tuple[int, ...]) -> None:
        if not shape or shape[0] % self.examples:
            raise NoShortcutError("an operation does not keep examples apart in dimension 0")


class _StandIn(torch.autograd.Function):
    """The identity; its gradient is handed over and goes no further."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensor: Tensor, receive: Callable[[Tensor], None]) -> Tensor:
        ctx.receive = receive
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.receive(gradients[0])
        return None, None, None


def apply(collector: Collector, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Compute a function of shared tensors and examples, and note the gradient rules of the shared ones.

    Raises:
        NoShortcutError: there is no formula for this function.
    """
    if func in HANDLERS:
        return HANDLERS[func](collector, *args, **kwargs)
    if name in ELEMENTWISE:
        shape = torch.broadcast_shapes(*(value.shape for value in args if isinstance(value, Tensor)))
        return func(*(collector.stand_in(v, shape) if collector.is_shared(v) else v for v in args), **kwargs)
    result = func(*args, **kwargs)
    if isinstance(result, Tensor) and not result.requires_grad:
        return result
    raise NoShortcutError(f"{name} has no formula for the gradient of one example")


def _linear(collector: Collector, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    _not_shared(collector, input)
    output = functional.linear(input, weight.detach(), _detached(bias))
    rules: list[GradientRule] = [Product(weight, collector.examples, input.detach())]
    return collector.at(output, *rules, *_bias(collector, bias))


def _addmm(collector: Collector, input: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    _not_shared(collector, mat1)
    output = torch.addmm(input.detach(), mat1, mat2.detach())
    return collector.at(output, Product(mat2, collector.examples, mat1.detach(), True), *_bias(collector, input))


def _matmul(collector: Collector, input: Tensor, other: Tensor) -> Tensor:
    _not_shared(collector, input)
    if other.ndim == 2:
        return collector.at(input @ other.detach(), Product(other, collector.examples, input.detach(), True))
    return input @ collector.stand_in(other, (*input.shape[:-2], *other.shape[-2:]))


def _conv2d(
    collector: Collector,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    _not_shared(collector, input)
    if groups != 1 or isinstance(padding, str):
        raise NoShortcutError("a convolution in groups, or with named padding, has no formula here")
    output = functional.conv2d(input, weight.detach(), _detached(bias), stride, padding, dilation)
    patches = functional.unfold(input.detach(), weight.shape[2:], dilation, padding, stride).mT
    rules: list[GradientRule] = [Convolution(weight, collector.examples, patches)]
    if bias is not None:
        rules.append(ChannelBias(bias, collector.examples))
    return collector.at(output, *rules)


def _layer_norm(
    collector: Collector,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    _not_shared(collector, input)
    output = functional.layer_norm(input, normalized_shape, _detached(weight), _detached(bias), eps)
    x = input.detach()
    rules: list[GradientRule] = []
    if weight is not None:
        rules.append(Gain(weight, collector.examples, lambda: functional.layer_norm(x, normalized_shape, eps=eps)))
    return collector.at(output, *rules, *_bias(collector, bias))


def _rms_norm(
    collector: Collector, input: Tensor, normalized_shape: Any, weight: Tensor, eps: float | None = None
) -> Tensor:
    _not_shared(collector, input)
    x = input.detach()
    output = functional.rms_norm(input, normalized_shape, weight.detach(), eps)
    return collector.at(
        output, Gain(weight, collector.examples, lambda: functional.rms_norm(x, normalized_shape, eps=eps))
    )


def _embedding(
    collector: Collector,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None or scale_grad_by_freq:
        raise NoShortcutError("an embedding that rescales has no formula here")
    return collector.at(
        functional.embedding(input, weight.detach()), Lookup(weight, collector.examples, input, padding_idx)
    )


def _cat(collector: Collector, tensors: Any, dim: int = 0) -> Tensor:
    if dim % tensors[0].ndim == 0:
        raise NoShortcutError("parameters are put beside examples as if they were examples")
    return torch.cat([collector.stand_in(t, t.shape) if collector.is_shared(t) else t for t in tensors], dim)


def _attention(
    collector: Collector, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, **rest: Any
) -> Tensor:
    if any(collector.is_shared(tensor) for tensor in (query, key, value)):
        raise NoShortcutError("queries, keys or values that no example has a part in have no formula here")
    shape = (*query.shape[:-1], key.shape[-2])
    return functional.scaled_dot_product_attention(query, key, value, collector.stand_in(attn_mask, shape), **rest)


def _bias(collector: Collector, bias: Tensor | None) -> list[GradientRule]:
    return [] if bias is None else [Broadcast(bias, collector.examples)]


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _not_shared(collector: Collector, tensor: Tensor) -> None:
    if collector.is_shared(tensor):
        raise NoShortcutError("a weight that depends on the examples has no formula here")


HANDLERS: dict[Any, Callable[..., Tensor]] = {
    functional.linear: _linear,
    torch.addmm: _addmm,
    torch.matmul: _matmul,
    torch.bmm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.__matmul__: _matmul,
    functional.conv2d: _conv2d,
    functional.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
    functional.embedding: _embedding,
    torch.cat: _cat,
    functional.scaled_dot_product_attention: _attention,
}
