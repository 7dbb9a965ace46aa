"""The ``fusionlab`` command."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

from fusionlab.signals import Watch

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all others here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = {
    "fit": "fine-tune an end model",
    "validate": "measure a model on validation data",
    "test": "measure a model on test data",
    "predict": "write a model's predictions",
    "advise": "what models are to one another, and what will help to merge them",
    "match": "write matched twins: ordinary checkpoints with the same function",
    "grow": "a model in a larger architecture, with the same function",
    "shrink": "a model in a smaller architecture, with as much of the function as fits",
    "merge": "merge checkpoints as they are",
    "fuse": "match, merge, measure and report: the main job",
    "barrier": "loss and accuracy along the line between two models",
    "compare": "a grid of merges: groups, methods, matchings, seeds, in one table",
    "reproduce": "the paper's tables and figures",
    "gather": "statistics of a model over data, to hand over instead of the data",
    "extract": "the difference of a model from its base model as a LoRA adapter",
    "vocab": "one vocabulary for language models that have different ones",
    "check": "models before any work: what they are, and how they can be matched and merged",
    "inspect": "spaces, symmetry and coverage of a model",
    "completion": "a script that lets a shell complete commands and options",
    "demo": "train, match, merge and report on embedded data, in a few minutes",
}
# Taken by every command: errors are printed, and nothing else.
QUIET = ("--quiet", "-q")
# The opposite: progress is told in logs too.
VERBOSE = ("--verbose", "-v")
TRAINING = ("fit", "validate", "test", "predict")
# The heading of the last options on a page of help, which are printed on request.
RESEARCH = "Research: details of matching"


def usage() -> str:
    """The text that ``fusionlab --help`` prints."""
    lines = [f"  {name:<12}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: fusionlab COMMAND [options]",
            "",
            "Match transformers in weight space without changing what they compute, and merge them into one.",
            "",
            "Examples:",
            "  fusionlab advise model_a model_b",
            "  fusionlab fuse --ckpts model_a model_b --data reviews.csv --output merged",
            "",
            "Commands:",
            *lines,
            "",
            "fusionlab COMMAND --help lists a command's options (--help all the rarer ones too);",
            "fusionlab --version prints the version.",
            "With --quiet a command prints errors only, with --verbose progress also where no terminal is.",
            "Results go to standard output, the rest to standard error.",
        ]
    )


def help_page(command: str) -> Path:
    """The text that ``--help`` of a command prints, as its parser has it: making that parser takes seconds.

    That of commands that train is a short one, as all of it depends on the classes that are named beside it.
    """
    return Path(__file__).parent / "commands" / "help" / f"{command}.txt"


def shown_help(command: str, everything: bool) -> str:
    """The text that ``--help`` of a command prints, or ``--help all``: options of research are named by their number.

    Args:
        command: one that has a page.
        everything: whether those are printed too.
    """
    page = help_page(command).read_text(encoding="utf-8")
    first, heading, rest = page.partition(f"\n{RESEARCH}:\n")
    if everything or not heading:
        return page
    count = sum(line.startswith("  --") for line in rest.splitlines())
    return f"{first}\n{RESEARCH}: {count} options more, by fusionlab {command} --help all\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; the process's own if None.

    Returns:
        The exit code: 0; 2 for bad input or a machine that cannot do it, told in one sentence on the standard error
        stream; 70 for an error of fusionlab's own; 128 and the number of the signal that ended it.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = f"fusionlab {arguments[0]}" if arguments and arguments[0] in COMMANDS else "fusionlab"
    watch = Watch(name)
    # First of all, as everything else that is imported takes seconds.
    watch.start()
    code = 1
    try:
        code = _run(arguments, name, watch)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    finally:
        # A process that is about to end keeps the handlers, so that a late signal gives no traceback either.
        if argv is None:
            watch.finish(code)
        else:
            watch.stop()
    return code


def _run(arguments: list[str], name: str, watch: Watch) -> int:
    """Run a command, and make of whatever it raises a line and an exit code."""
    try:
        code = _command(arguments, watch)
        sys.stdout.flush()
    except BaseException as error:
        # Looked at first: what an interruption leaves behind (a half-made import, for example) raises anything.
        if watch.received is not None or isinstance(error, KeyboardInterrupt):
            watch.tell()
            return watch.code
        from fusionlab import exits

        if exits.is_broken_pipe(error):
            return exits.BROKEN_PIPE
        if isinstance(error, SystemExit):
            raise
        return exits.tell(error, name, arguments[1:])
    return code


def _command(arguments: list[str], watch: Watch) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        from fusionlab import __version__

        print(f"fusionlab {__version__}")
        return 0
    command, *rest = arguments
    if command in (*QUIET, *VERBOSE) and rest:
        command, *rest = [*rest, command]
    if command not in COMMANDS:
        print(f"fusionlab: error: {_no_command(command)}", file=sys.stderr)
        return 2
    if command in TRAINING and rest in (["-h", "all"], ["--help", "all"]):
        # Lightning's parser prints it, as beside a config.
        rest = ["--help"]
    elif rest[:1] in (["-h"], ["--help"]) and rest[1:] in ([], ["all"]):
        print(shown_help(command, everything=rest[1:] == ["all"]), end="")
        return 0
    # Nothing fusionlab runs forks after using tokenizers; without this each of them warns that it might.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    module = _imported(f"fusionlab.commands.{'train' if command in TRAINING else command}")
    from fusionlab.atomic import discard_all
    from fusionlab.printing import quieted, spoken

    watch.begin(discard_all)
    kept = [word for word in rest if word not in (*QUIET, *VERBOSE)]
    with quieted(any(word in QUIET for word in rest)), spoken(any(word in VERBOSE for word in rest)):
        if command in TRAINING:
            module.run(command, kept)
        else:
            module.run(kept)
    return 0


def _imported(name: str) -> ModuleType:
    """A module, imported with all that it needs.

    A million objects come with torch, Lightning and transformers and stay until the process ends. Looking through them
    for garbage, while they come and again and again later, took a third of a short command's time.
    """
    if "torch" in sys.modules:
        return importlib.import_module(name)  # within another program, whose objects are its own business
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _no_command(name: str) -> str:
    """The sentence for a command that does not exist: the nearest one, and all there are."""
    from fusionlab.suggestions import did_you_mean

    return f"there is no command {name!r}; expected {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())
