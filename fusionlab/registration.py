"""The signature that every registry asks of a function, told in a sentence when it is registered."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def first_parameters(function: Callable[..., Any], names: tuple[str, ...], what: str) -> None:
    """Refuse a function that cannot be called with some positional arguments first.

    Args:
        function: to be registered.
        names: what it is given, in order, as the sentence says it.
        what: the kind of function, for the sentence.

    Raises:
        TypeError: it takes fewer, or more that have no default.
    """
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(positional) < len(names) or len(needed) > len(names):
        raise TypeError(
            f"{what} {function.__name__!r} takes ({', '.join(p.name for p in parameters)}); expected "
            f"({', '.join(names)}), and a default for all that follows"
        )


def annotation_of(function: Callable[..., Any], position: int, what: str) -> Any:
    """The annotation of one of a function's parameters.

    Args:
        function: to be registered.
        position: of the parameter.
        what: the kind of function, for the sentence.

    Raises:
        TypeError: it has none.
    """
    name = list(inspect.signature(function).parameters)[position]
    hints = get_type_hints(function)
    if name not in hints:
        raise TypeError(f"{what} {function.__name__!r} does not say what {name} is; expected an annotation")
    return hints[name]
