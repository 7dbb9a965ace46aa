"""A base model and fine-tunes of it, for tests of methods that merge task vectors."""

import torch
from torch import Tensor

State = dict[str, Tensor]
SHAPES = {"tall": (12, 6), "wide": (5, 9), "kernel": (8, 3, 2, 2), "stack": (2, 4, 3), "bias": (10,), "scale": ()}


def fine_tunes(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[State, list[State]]:
    """A base model, and models a tenth of its size away X, a stack, a vector, a number."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(size: float) -> State:
        return {
            name: (size * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
            for name, shape in SHAPES.items()
        }

    base = drawn(1.0)
    return base, [{name: base[name] + change for name, change in drawn(0.1).items()} for _ in range(count)]


def adapted(base: State, ranks: list[int], dtype: torch.dtype = torch.float64) -> list[State]:
    """Models whose matrices are changed by matrices of small ranks, a tenth of the base's size, as adapters do."""
    generator = torch.Generator().manual_seed(7)

    def change(tensor: Tensor, rank: int) -> Tensor:
        if tensor.dim() not in (2, 4):
            return torch.zeros_like(tensor)
        flat = tensor.flatten(1)
        sides = [torch.randn(size, rank, generator=generator, dtype=torch.float64) for size in flat.shape]
        return (0.1 * sides[0] @ sides[1].mT).reshape(tensor.shape)

    return [{name: (t.double() + change(t, rank)).to(dtype) for name, t in base.items()} for rank in ranks]


def changes_of(base: State, states: list[State], name: str) -> Tensor:
    """The task vectors of one parameter, ``(models, *shape)``."""
    return torch.stack([state[name] - base[name] for state in states])


def mean_change(base: State, states: list[State], name: str) -> Tensor:
    """The parameter with the mean change, as everything that is no matrix gets it."""
    return base[name] + changes_of(base, states, name).mean(0)


def rotation(size: int, seed: int) -> Tensor:
    """A random orthogonal matrix in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q


def rotated(state: State) -> State:
    """The matrices of `fine_tunes` in other bases on both sides; everything else as it is."""
    return state | {
        "tall": rotation(12, 1) @ state["tall"] @ rotation(6, 2),
        "wide": rotation(5, 3) @ state["wide"] @ rotation(9, 4),
        "kernel": torch.einsum("ab,bikl->aikl", rotation(8, 5), state["kernel"]),
    }
