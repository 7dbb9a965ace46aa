"""Command-line options out of options classes: names, types and help are those of the class and its docstring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docstring_parser import parse


def help_of(kind: type, name: str) -> str:
    """The description of a field in the docstring of an options class, or of one that it derives from.

    Args:
        kind: a dataclass with an ``Attributes`` section.
        name: of the field.

    Raises:
        KeyError: it says nothing.
    """
    for one in kind.__mro__:
        for found in parse(one.__doc__ or "").params:
            if found.arg_name == name and found.description:
                words = " ".join(found.description.split()).replace("``", "`")
                return words[0].upper() + words[1:]
    raise KeyError(f"{kind.__name__} does not say what {name} is")


def told(kind: type, name: str) -> str:
    """The same without the marks of code, for ``--help``.

    Args:
        kind: a dataclass with an ``Attributes`` section.
        name: of the field.
    """
    return help_of(kind, name).replace("`", "")


def options_of(kinds: Iterable[type], leave_out: Iterable[str] = ()) -> dict[str, list[type]]:
    """The fields of some options classes, each with the classes that have it.

    Args:
        kinds: dataclasses.
        leave_out: fields that are no options of a command.
    """
    found: dict[str, list[type]] = {}
    for kind in kinds:
        for field in fields(kind):
            if field.name not in leave_out:
                found.setdefault(field.name, []).append(kind)
    return found


def add_options(group: Any, kinds: Mapping[type, str], leave_out: Iterable[str] = ()) -> tuple[str, ...]:
    """Add an option for every field of some options classes; what is not given is None.

    Args:
        group: a parser, or a group of one.
        kinds: dataclasses, with what their options are of, for the help; nothing for those of everything.
        leave_out: fields that have an option of the command's own.

    Returns:
        The names of the options.
    """
    added = options_of(kinds, leave_out)
    for name, owners in added.items():
        # A field that a class inherits is told once.
        texts: dict[str, str] = {}
        for kind in owners:
            texts.setdefault(told(kind, name), kinds[kind])
        words = " ".join(f"Of {of}: {text[0].lower()}{text[1:]}" if of else text for text, of in texts.items())
        group.add_argument(f"--{name}", type=_written(owners[0], name), help=words)
    return tuple(added)


def _written(kind: type, name: str) -> Any:
    """The type of an option as it may be written: lists as text with commas, and words that YAML takes for false."""
    hint = get_type_hints(kind)[name]
    if hint == tuple[str, ...]:
        return str | list[str] | None
    # The class itself refuses other words, in a sentence that names those that there are.
    if get_origin(hint) is Literal or any(get_origin(part) is Literal for part in get_args(hint)):
        return str | bool | None
    return str | int | None if hint is str else hint | None


def table(kinds: Mapping[type, str], leave_out: Iterable[str] = ()) -> str:
    """A Markdown table of the options of some classes, with their defaults.

    Args:
        kinds: dataclasses, with what their options are of.
        leave_out: fields that are told elsewhere.
    """
    lines = ["| option | of | default | meaning |", "|---|---|---|---|"]
    seen = set()
    for kind, of in kinds.items():
        for field in fields(kind):
            words = help_of(kind, field.name)
            if field.name in leave_out or (field.name, words) in seen:
                continue
            seen.add((field.name, words))
            default = field.default if not isinstance(field.default, tuple) else ",".join(field.default) or "none"
            shown = "" if default is None else f"`{default}`"
            lines.append(f"| `--{field.name}` | {f'`{of}`' if of else ''} | {shown} | {words} |")
    return "\n".join(lines)
