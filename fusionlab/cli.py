"""The ``fusionlab`` command."""

import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "fit": "fine-tune an end model",
    "validate": "measure a model on validation data",
    "test": "measure a model on test data",
    "predict": "write a model's predictions",
    "match": "write matched twins: ordinary checkpoints with the same function",
    "merge": "merge checkpoints as they are",
    "fuse": "match, merge, measure and report: the main job",
    "barrier": "loss and accuracy along the line between two models",
    "compare": "a grid of merges: groups, methods, matchings, seeds, in one table",
    "reproduce": "the paper's tables and figures",
    "gather": "statistics of a model over data, to hand over instead of the data",
    "inspect": "spaces, symmetry and coverage of a model",
    "demo": "the whole story on embedded data, in a few minutes",
}
TRAINING = ("fit", "validate", "test", "predict")


def usage() -> str:
    """What ``fusionlab --help`` prints."""
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: fusionlab COMMAND [options]",
            "",
            "Match transformers in weight space without changing what they compute, and merge them into one.",
            "",
            *lines,
            "",
            "fusionlab COMMAND --help tells a command's options; fusionlab --version the version.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; the process's own if None.

    Returns:
        The exit code: 0, or 2 for bad input, told in one sentence on the standard error stream.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        from fusionlab import __version__

        print(f"fusionlab {__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"fusionlab: error: there is no command {command!r}; expected {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    # Nothing fusionlab runs forks after using tokenizers; without this each of them warns that it might.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from fusionlab.errors import InputError
    from fusionlab.symmetry import SymmetryError

    try:
        if command in TRAINING:
            importlib.import_module("fusionlab.commands.train").run(command, rest)
        else:
            importlib.import_module(f"fusionlab.commands.{command}").run(rest)
    except (InputError, SymmetryError) as error:
        print(f"fusionlab {command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"fusionlab {command}: interrupted; nothing was written half", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
