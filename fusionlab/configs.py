"""Finding a configuration file by its bare name."""

import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml

from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded

_PACKAGE = Path(__file__).resolve().parent
# A config of a hundred end models has some thousand values, six deep, in a hundred kilobytes.
_LARGEST, _MOST_VALUES, _DEEPEST = 2**20, 100_000, 60
# What values are read as; any other tag would make something else of them, or run code where a loader allows it.
_PLAIN = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge", "value")
}
_SUFFIXES = {".yaml", ".yml", ".json"}


def shipped_folder() -> Path:
    """The folder of configurations that come with fusionlab: in the wheel, or in the checkout it is installed from."""
    inside = _PACKAGE / "shipped_configs"
    return inside if inside.is_dir() else _PACKAGE.parent / "configs"


def resolve(name: str | Path) -> Path:
    """The configuration file that a name stands for.

    Args:
        name: a path, or a bare name with or without ``.yaml``, looked for in the working folder, in ``configs/`` under
            it, and in the configurations that come with fusionlab.

    Returns:
        The file.

    Raises:
        InputError: there is none; says where it was looked for and which names are close.
    """
    given = expanded(name)
    folders = [Path(), Path("configs"), shipped_folder()]
    if given.name != str(name):  # a path leaves nothing to be looked for
        folders = [Path()]
    for folder in folders:
        candidate = folder / given
        for file in (candidate, candidate.with_name(f"{candidate.name}.yaml")):
            if file.is_file():
                return file
    raise InputError(_not_found(given, folders))


def resolve_arguments(argv: Sequence[str]) -> tuple[list[str], str]:
    """The arguments with every config's full path, and a name for the logs: that of the last config."""
    arguments = list(argv)
    name = "fusionlab"
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        following = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
        if option not in ("--config", "-c") or following.startswith("{"):
            continue  # no config, or what one says in place of its name
        if equals:
            path = resolve(value)
            arguments[index] = f"{option}={path}"
        elif index + 1 < len(arguments):
            path = resolve(arguments[index + 1])
            arguments[index + 1] = str(path)
        else:
            continue
        refuse_unfit(path)
        name = path.stem
    return arguments, name


def refuse_unfit(path: Path) -> None:
    """Refuse a config that would be more than can be read, before any parser reads it.

    YAML names a value once and repeats it anywhere, so that a file of a few lines can stand for billions of values.
    What is no YAML at all is left to the parser, which says in which line.

    Args:
        path: the config.

    Raises:
        InputError: it is too large, is not UTF-8, nested too deeply, holds itself, or stands for too many values; it
            has a tag other than those of plain values, a key twice in one place, no keys at all, or names another
            config.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        raise InputError(f"{path} has {size:,} bytes; expected a config of at most {_LARGEST:,}")
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        count = 0 if root is None else _count(root, {}, ())
        if root is not None:
            _refuse_odd(path, root, set())
    except yaml.YAMLError:
        return
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({first_line(error)}); expected a config in YAML") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply; expected a config of ordinary depth") from error
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path} holds no options; expected a config in YAML, with lines such as 'seed: 0'")
    if odd := [key.value for key, _ in root.value if key.tag.rpartition(":")[2] not in ("str", "merge")]:
        raise InputError(f"{path} has the key {odd[0]!s}, which is no text; expected names of options")
    if any(key.value == "config" for key, _ in root.value):
        raise InputError(f"{path} names another config (config); expected its values")
    if count > _MOST_VALUES:
        raise InputError(
            f"{path} stands for more than {_MOST_VALUES:,} values once its YAML aliases are expanded; expected fewer"
        )


def _count(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    """The number of values that a node stands for, all repetitions counted."""
    if id(node) in above or len(above) > _DEEPEST:
        raise RecursionError
    if id(node) not in known:
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        inner = parts if isinstance(node, yaml.MappingNode | yaml.SequenceNode) else ()
        known[id(node)] = 1 + sum(_count(part, known, (*above, id(node))) for part in inner)
    return known[id(node)]


def _refuse_odd(path: Path, node: yaml.Node, seen: set[int]) -> None:
    """Refuse tags, keys that stand twice in one place (the last would win) and integers that no machine holds."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag not in _PLAIN:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")[:100]
        raise InputError(f"{path}: the YAML tag {tag} is not supported; expected plain values")
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int") and len(node.value) > 1000:
        raise InputError(f"{path} holds an integer of {len(node.value):,} digits; expected a number")
    if isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := [key for key, times in keys.items() if times > 1 and key != "<<"]:
            raise InputError(f"{path} has the key {twice[0][:100]!r} twice in one mapping; expected it once")
        for pair in node.value:
            for part in pair:
                _refuse_odd(path, part, seen)
    elif isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _refuse_odd(path, part, seen)


def _not_found(name: Path, folders: list[Path]) -> str:
    known: set[str] = set()
    for folder in folders:
        place = (folder / name).parent
        if place.is_dir():
            known |= {file.name for file in place.iterdir() if file.suffix in _SUFFIXES}
    close = difflib.get_close_matches(name.name, sorted(known), n=3) or difflib.get_close_matches(
        f"{name.name}.yaml", sorted(known), n=3
    )
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    first, *others = folders
    places = str((first / name).parent.resolve())
    if others:
        places += f", configs in it and {shipped_folder()}"
    return f"there is no config {name} (looked through {places}){hint}"
