"""Finding a configuration file by its bare name."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from fusionlab.errors import InputError
from fusionlab.paths import expanded

_PACKAGE = Path(__file__).resolve().parent
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
        if option not in ("--config", "-c"):
            continue
        if equals:
            path = resolve(value)
            arguments[index] = f"{option}={path}"
        elif index + 1 < len(arguments):
            path = resolve(arguments[index + 1])
            arguments[index + 1] = str(path)
        else:
            continue
        name = path.stem
    return arguments, name


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
