"""Arithmetic in which a symmetry can be shown to rounding: float64 throughout, by plain operations."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class InFloat64(TorchFunctionMode):
    """While active, float64 stays float64 where a model's code asks for float32, as many norms and softmaxes do.

    Without it a check in float64 of such a model can be no finer than float32. Integers that are made float become
    float64 as well, since rotary codes multiply positions with frequencies, and a product takes one type only.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Of whole numbers and truth values float32 would be the only one beside float64.
        is_exact = bool(args) and isinstance(args[0], Tensor) and _is_exact(args[0].dtype)
        if func is Tensor.float and is_exact:
            # A copy as a conversion makes one: code that pairs numbers as complex ones needs even strides.
            return args[0].to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        if func is torch.tensor and kwargs.get("dtype") is torch.float32 and isinstance(args[0], int | float):
            # A constant of the code, such as the factor of scores; one number by itself makes nothing else float64.
            return func(*args, **{**kwargs, "dtype": torch.float64})
        if func is torch.full and "dtype" not in kwargs and len(args) > 1 and _overflows(args[1]):
            # The least number of float64, for what is masked.
            return func(*args, **kwargs, dtype=torch.float64)
        if is_exact:
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {name: torch.float64 if value is torch.float32 else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _is_exact(dtype: torch.dtype) -> bool:
    """True for float64, whole numbers and truth values."""
    return dtype == torch.float64 or not (dtype.is_floating_point or dtype.is_complex)


def _overflows(value: Any) -> bool:
    """A finite number that float32 cannot hold."""
    return isinstance(value, float) and torch.finfo(torch.float32).max < abs(value) < math.inf


def take_plain_products(model: nn.Module, attention: bool = False) -> None:
    """Make a model compute by operations that every dtype has, in place: the fused product of experts has no float64.

    Args:
        model: of transformers; any other is left as it is.
        attention: attention step by step too, which alone returns its maps.
    """
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._experts_implementation = "batched_mm"
            if attention:
                config._attn_implementation = "eager"
