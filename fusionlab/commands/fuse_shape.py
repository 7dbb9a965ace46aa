"""The two shapes of a call of ``fusionlab fuse``: its own options, or a config of Lightning's."""

from collections.abc import Sequence

import yaml

from fusionlab import configs


def is_of_lightning(argv: Sequence[str]) -> bool:
    """True if the arguments name a config of Lightning's shape, or options that only that has."""
    arguments, _ = configs.resolve_arguments(argv)
    for index, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        if option.startswith(("--model.", "--trainer.")):
            return True
        if option in ("--config", "-c"):
            path = value or next(iter(arguments[index + 1 : index + 2]), "")
            try:
                with open(path, encoding="utf-8") as file:
                    read = yaml.safe_load(file)
            except (OSError, yaml.YAMLError, ValueError):
                # The parser of flags says what is wrong with it.
                return False
            if isinstance(read, dict) and {"model", "trainer"} & read.keys():
                return True
    return False
