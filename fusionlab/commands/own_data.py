"""Data on the command line that are no class but a file, a folder or a hub id: ``--data my.csv``.

They are written as the data module `OwnData` before anything is parsed, and become another one once the checkpoints
are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_only

from fusionlab import configs
from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.files import ADAPTER_CONFIG, CONFIG
from fusionlab.commands.console import tell
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.probes import KINDS
from fusionlab.suggestions import nearest

if TYPE_CHECKING:  # what reads data takes most of a second to import, so it is where data are named
    from fusionlab.data.choosing import Use
    from fusionlab.data.own import OwnData

OPTIONS = ("data", "out_of_domain", "probes")
# What a module is called, and a class by its import path.
_CLASS, _DOTTED = re.compile(r"[A-Z]\w*"), re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_WORDS = ("synthetic", "null", "None", "", *KINDS)
_PATH = "fusionlab.data.own.OwnData"
# Words that begin so may name data, or ask for all that can be named.
_NAMING = ("--data", "--out_of", "--out-of", "--probes", "--config", "--help", "--print_config", "-c", "-h")


def written_out(argv: Sequence[str], options: Sequence[str] = OPTIONS, several: bool = True) -> list[str]:
    """Arguments in which data that are no class are the data module `OwnData`, with what is said of it.

    Args:
        argv: of a command.
        options: those that take data, without dashes.
        several: whether all words behind such an option are its data. Where checkpoints may follow, those are that are
            called as files of data are.

    Raises:
        InputError: a name that is nearly that of a data module.
    """
    if any(word.startswith(_NAMING) for word in argv):
        # Its classes can be named without their module then.
        import fusionlab.data  # noqa: F401, PLC0415
    arguments = list(_configs_written_out(argv, options))
    for option in options:
        arguments = _option_written_out(arguments, option, several)
    return arguments


def fitted(
    arguments: Namespace, checkpoints: Sequence[Checkpoint], command: str, use: Use = "measuring"
) -> dict[str, str]:
    """Put the data modules of the checkpoints in place of data that were named alone, and tell what was guessed.

    Args:
        arguments: parsed; those that name data are changed.
        checkpoints: the models. As many data as models are each for one of them, others for the first.
        command: for messages.
        use: of ``data``; ``out_of_domain`` is measured on as a whole, of ``probes`` no labels are needed.

    Returns:
        What was guessed, by option; nothing where nothing was.

    Raises:
        InputError: data that do not fit, see `OwnData.fitted`.
    """
    uses: dict[str, Use] = {"data": use, "out_of_domain": "outside", "probes": "inputs"}
    said: dict[str, str] = {}
    for option in OPTIONS:
        given = arguments.get(option)
        listed = given if isinstance(given, list) else [given]
        if not any(_named_alone(module) for module in listed):
            continue
        modules, words = fitted_modules(listed, checkpoints, uses[option], option)
        arguments[option] = modules if isinstance(given, list) else modules[0]
        said[option] = " ".join(words)
        for sentence in words:
            rank_zero_only(tell)(f"fusionlab {command}: {sentence}")
    return said


def fitted_modules(
    given: Sequence[LightningDataModule], checkpoints: Sequence[Checkpoint], use: Use, option: str = "data"
) -> tuple[list[LightningDataModule], list[str]]:
    """Data modules of which those named alone are fitted to the checkpoints, and what was guessed.

    Args:
        given: data modules.
        checkpoints: the models.
        use: of the data.
        option: that named them.

    Raises:
        InputError: data that do not fit.
    """
    each = len(given) == len(checkpoints) and option != "out_of_domain"
    modules, words = [], []
    for index, module in enumerate(given):
        if (own := _named_alone(module)) is not None:
            try:
                fit, sentence = own.fitted(checkpoints[index if each else 0], use)
            except InputError as error:
                raise InputError(_setting().sub(f"--{option}.", str(error))) from error
            words.append(f"{sentence.replace('--data.', f'--{option}.')}.")
            modules.append(fit)
        else:
            modules.append(module)
    return modules, words


def _named_alone(module: object) -> OwnData | None:
    """A data module that stands for data that were named alone; None if it is another one, or none."""
    if not isinstance(module, LightningDataModule):
        return None
    from fusionlab.data.own import OwnData  # noqa: PLC0415

    return module if isinstance(module, OwnData) else None


def _setting() -> re.Pattern[str]:
    """Options in the sentences of `OwnData`, which begin as those of the data that are measured on."""
    from fusionlab.data.own import OwnData  # noqa: PLC0415

    return re.compile(rf"(?<![\w/.-])data\.(?=({'|'.join(signature(OwnData).parameters)})\b)")


def _option_written_out(arguments: list[str], option: str, several: bool) -> list[str]:
    """Arguments with one option written out; its settings, wherever they stand, become those of each of its data."""
    names = {f"--{option}", f"--{option.replace('_', '-')}"}
    kept: list[str] = []
    settings: list[tuple[int, str, str]] = []
    places: list[str] | None = None
    index = 0
    while index < len(arguments):
        word = arguments[index]
        name, equals, value = word.partition("=")
        index += 1
        if name in names:
            found = [value] if equals else _words_behind(arguments[index:], option, several)
            index += 0 if equals else len(found)
            if found and all(_is_own(place, option, len(found) > 1) for place in found):
                places = found
                continue
            kept += [word, *([] if equals else found)]
        elif any(name.startswith(f"{own}.") for own in names) and not name.endswith(".help"):
            rest = arguments[index : index + 1] if not equals else []
            index += len(rest)
            settings.append((len(kept), name.split(".", 1)[1], value if equals else "".join(rest)))
            kept += [word, *rest]
        else:
            kept.append(word)
    if places is None:
        is_known = any(word.partition("=")[0] in {*names, "--config", "-c"} for word in kept)
        if settings and not is_known:
            raise InputError(
                f"--{option}.{settings[0][1]} is a setting of data, and none are named; expected --{option} too: a "
                f"file, a folder, a hub id or a data module"
            )
        return kept
    options = {key: value if key == "label_values" else _read(value) for _, key, value in settings}
    dropped = {place + step for place, _, _ in settings for step in range(1 if "=" in kept[place] else 2)}
    plain = [word for place, word in enumerate(kept) if place not in dropped]
    return [*plain, f"--{option}", _as_modules(places, options)]


def _words_behind(rest: Sequence[str], option: str, several: bool) -> list[str]:
    """The words that belong to an option: the first, and those after it that are data too."""
    found: list[str] = []
    for word in rest:
        if word.startswith("-") or (found and not several and not _is_called_as_data(word)):
            break
        found.append(word)
        if not found[0] or not _is_own(found[0], option, False):
            break
    return found


def _is_own(place: str, option: str, sure: bool) -> bool:
    """True for data that are no class, no kind of probe and nothing written in YAML.

    A plain word may be a hub id of data to be measured on, or a kind of probe that there is none of.

    Raises:
        InputError: nearly the name of a data module.
    """
    import fusionlab.data  # noqa: PLC0415
    from fusionlab.data.tables import FILE_BUILDERS  # noqa: PLC0415

    known = [name for name in fusionlab.data.__all__ if name[0].isupper()]
    is_word = place in _WORDS and (option == "probes" or not place or not expanded(place).exists())
    if is_word or place in known or place[:1] in "[{":
        return False
    if expanded(place).exists() or "/" in place or Path(place).suffix in FILE_BUILDERS:
        return True
    if _CLASS.fullmatch(place) and (close := nearest(place, known)):
        raise InputError(f"{place}: there is no such file, folder or data module; did you mean {close[0]}?")
    return sure or not (option == "probes" or _CLASS.fullmatch(place) or _DOTTED.fullmatch(place))


def _is_called_as_data(word: str) -> bool:
    """True for what is called as a file of data, or is a folder that holds no model."""
    from fusionlab.data.tables import FILE_BUILDERS  # noqa: PLC0415

    place = expanded(word)
    is_model = any((place / name).is_file() for name in (CONFIG, ADAPTER_CONFIG))
    return place.suffix in FILE_BUILDERS or (place.is_dir() and not is_model)


def _as_modules(places: Sequence[str], options: Mapping[str, Any]) -> str:
    modules = [{"class_path": _PATH, "init_args": {"path": place, **options}} for place in places]
    return json.dumps(modules[0] if len(modules) == 1 else modules)


def _read(value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _configs_written_out(argv: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Arguments in which each config that names data so is replaced by what it says."""
    is_next = False
    for word in configs.resolve_arguments(argv)[0]:
        name, equals, value = word.partition("=")
        if is_next:
            yield _config_written_out(word, options)
        elif name in ("--config", "-c") and equals:
            yield f"{name}={_config_written_out(value, options)}"
        else:
            yield word
        is_next = word in ("--config", "-c")


def _config_written_out(path: str, options: Sequence[str]) -> str:
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return path
    if not isinstance(read, dict):
        return path
    changed = {}
    for option in options:
        value = read.get(option)
        places = value if isinstance(value, list) else [value]
        if all(isinstance(place, str) and _is_own(place, option, len(places) > 1) for place in places):
            changed[option] = json.loads(_as_modules([str(place) for place in places], {}))
    return json.dumps(read | changed) if changed else path
