"""Sums, means, maxima and what chooses by them."""

from typing import Any

from torch import Tensor

from fusionlab.symmetry.infer.dims import Dim, atoms, fresh, mapped
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.values import Value, rule

# Rotations leave these alone.
NORMS = ("mean", "linalg_vector_norm", "var", "var_mean", "std")
PLAIN = ("sum", "mean")
LARGEST = ("amax", "amin", "max", "min")


@rule(
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "any", "all", "logsumexp", "prod", "argmax"
)
@rule("argmin", "linalg_vector_norm", "norm")
def _reduce(reading: Reading, x: Value, *args: Any, out: Any, **options: Any) -> Any:
    name = reading.operation
    if args and isinstance(args[0], Value):
        # The larger of two, element by element.
        reading.rectify(x)
        return combined(reading, [x, args[0]], "add", out)
    dims: Any = next((a for a in args if isinstance(a, list | tuple)), options.get("dim"))
    if dims is None:
        at = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
        dims = at[:1] or range(x.tensor.ndim)
    gone = {d % x.tensor.ndim for d in ([dims] if isinstance(dims, int) else dims)} if x.tensor.ndim else set()
    blind = reading.mode == "sign" and name in NORMS
    if not blind:
        for d in gone:
            reading.silence(x.dims[d])
        if name in LARGEST:
            # Positive factors pass a maximum; where none arrives, as of probabilities, it says nothing of a space.
            reading.rectify(Value([d for d in x.dims if any(atom.exponent for atom in atoms(d))], x.tensor))
        elif name not in PLAIN:
            x = combined(reading, [x], "other", x.tensor)
    first = out[0] if isinstance(out, tuple | list) else out
    kept = first.ndim == x.tensor.ndim

    def reduced(tensor: Tensor, index: Dim | None = None) -> Value:
        left: list[Dim] = [() if i in gone else d for i, d in enumerate(x.dims) if kept or i not in gone]
        return Value(left, tensor, index=index)

    if name in ("argmax", "argmin"):
        return reduced(out, x.dims[min(gone)])
    if isinstance(out, tuple | list):
        if name not in LARGEST:
            return reduced(out[0]), reduced(out[1])
        # Which is the largest no positive factor changes.
        where = Value([mapped(d, lambda _: {}) for d in reduced(out[1]).dims], out[1], index=x.dims[min(gone)])
        return reduced(out[0]), where
    return reduced(out)


@rule("topk", "sort", "argsort")
def _ordered(reading: Reading, x: Value, *args: Any, out: Any, **options: Any) -> Any:
    if reading.operation == "topk":
        dim = args[1] if len(args) > 1 else options.get("dim", -1)
    else:
        numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
        dim = options.get("dim", numbers[0] if numbers else -1)
    dim %= x.tensor.ndim
    x = combined(reading, [x], "other", x.tensor)
    first = out[0] if isinstance(out, tuple | list) else out
    ranks = fresh(first.shape[dim], is_fixed=True)
    dims = [ranks if i == dim else d for i, d in enumerate(x.dims)]
    if isinstance(out, tuple | list):
        return Value(list(dims), out[0]), Value(list(dims), out[1], index=x.dims[dim])
    return Value(list(dims), out, index=x.dims[dim])
