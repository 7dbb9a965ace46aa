"""Command-line options out of options classes: names, types and help are those of the class and its docstring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
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
        if words := _told_of(one).get(name):
            return words[0].upper() + words[1:]
    raise KeyError(f"{kind.__name__} does not say what {name} is")


@cache
def _told_of(kind: type) -> dict[str, str]:
    """By attribute, the words of a class's own docstring."""
    params = parse(kind.__doc__ or "").params
    return {one.arg_name: " ".join(one.description.split()).replace("``", "`") for one in params if one.description}


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


def add_fields(
    group: Any,
    kind: type,
    names: Iterable[str] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    positional: Iterable[str] = (),
) -> None:
    """Add an option for each of some fields of one class, with the defaults of the class.

    A field without a default has to be given.

    Args:
        group: a parser, or a group of one.
        kind: a dataclass.
        names: of the fields; all if None.
        changes: by field, arguments of ``add_argument`` that the command has otherwise than the class, and ``flags``
            that are shown before the field's own.
        positional: fields that are given by their place, not by a flag.
    """
    hints, unnamed = _hints(kind), set(positional)
    for field in _chosen(kind, names):
        taken = {"help": told(kind, field.name), **_taken(hints[field.name])}
        changed = dict((changes or {}).get(field.name, {}))
        flags = (*changed.pop("flags", ()), f"--{field.name}")
        if field.name in unnamed:
            group.add_argument(field.name, **taken | changed)
            continue
        taken |= (
            {"required": True} if _is_required(field) and "default" not in changed else {"default": _default(field)}
        )
        group.add_argument(*flags, **taken | changed)


def told_all(kind: type) -> str:
    """All fields of a class in one sentence for ``--help``: of what is one value of another option.

    Args:
        kind: a dataclass with an ``Attributes`` section.
    """
    words = {field.name: told(kind, field.name).removesuffix(".") for field in fields(kind)}
    return f"{'; '.join(f'{name} ({text[0].lower()}{text[1:]})' for name, text in words.items())}."


def _chosen(kind: type, names: Iterable[str] | None) -> list[Field[Any]]:
    """Some fields of a dataclass, in the order of their names; all if None."""
    known = {field.name: field for field in fields(kind)}
    return [known[name] for name in (known if names is None else names)]


def _is_required(field: Field[Any]) -> bool:
    """True for a field that has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> Any:
    """The default of a field as a parser has it; None for a field that has none."""
    found = field.default if field.default_factory is MISSING else field.default_factory()
    if found is MISSING:
        return None
    return list(found) if isinstance(found, tuple) else found


def _taken(hint: Any) -> dict[str, Any]:
    """The arguments of ``add_argument`` for a field's type: a switch needs no value, a sequence takes several."""
    if hint is bool:
        return {"type": bool, "nargs": "?", "const": True}
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Sequence:
            return {"type": get_args(part)[0], "nargs": "+"}
    return {"type": list[get_args(hint)[0]] if get_origin(hint) is tuple else hint}  # type: ignore[misc]


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields."""
    return get_type_hints(kind)


def _written(kind: type, name: str) -> Any:
    """The type of an option as it may be written: lists as text with commas, and words that YAML takes for false."""
    hint = _hints(kind)[name]
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
            shown = _shown(_default(field))
            lines.append(f"| `--{field.name}` | {f'`{of}`' if of else ''} | {shown} | {words} |")
    return "\n".join(lines)


def table_of(*kinds: tuple[type, Sequence[str] | None], defaults: Mapping[str, Any] | None = None) -> str:
    """A Markdown table of some fields of some classes, with their defaults.

    Args:
        kinds: dataclasses with the names of the fields; all if None.
        defaults: those that a command has otherwise than the class.
    """
    changed = defaults or {}
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for kind, names in kinds:
        for field in _chosen(kind, names):
            default = changed.get(field.name, _default(field))
            lines += [f"| `--{field.name}` | {_shown(default)} | {help_of(kind, field.name)} |"]
    return "\n".join(lines)


def _shown(default: Any) -> str:
    """The default of an option, for a reader; nothing where there is none."""
    if isinstance(default, list):
        default = ",".join(map(str, default)) or "none"
    return "" if default is None or default == {} else f"`{default}`"
