"""Examples that the help of each command opens with, and the order of its options: common ones first."""

from __future__ import annotations

import re

from fusionlab.cli import RESEARCH

EXAMPLES = {
    "advise": (
        "fusionlab advise model_a model_b",
        "fusionlab advise model_a model_b --data reviews.csv",
    ),
    "fuse": (
        "fusionlab fuse --ckpts model_a model_b --data reviews.csv --output merged",
        "fusionlab fuse --ckpts model_a model_b --match learned --method regmean --data reviews.csv --output merged",
    ),
    "match": (
        "fusionlab match model_a --anchor model_b --output a_in_basis_of_b",
        "fusionlab match model_a --anchor model_b --match learned --probes texts.csv --output a_in_basis_of_b",
    ),
    "merge": (
        "fusionlab merge model_a model_b --output merged",
        "fusionlab merge model_a model_b --method ties --base base_model --output merged",
    ),
    "barrier": (
        "fusionlab barrier model_a model_b --data reviews.csv",
        "fusionlab barrier model_a model_b --match weights --data pictures/ --output line",
    ),
    "gather": (
        "fusionlab gather model_a --data reviews.csv --output model_a.safetensors",
        "fusionlab gather model_a --data pictures/ --kinds gram,fisher --output model_a.safetensors",
    ),
    "compare": (
        "fusionlab compare --config digits_methods",
        "fusionlab compare --config emotion_pairs --output table --dry-run",
    ),
    "reproduce": ("fusionlab reproduce table1", "fusionlab reproduce table1 --dry-run"),
    "extract": (
        "fusionlab extract fine_tuned --base base_model --rank 16 --output adapter",
        "fusionlab extract merged --base base_model --rank 64 --output adapter",
    ),
    "vocab": (
        "fusionlab vocab model_a model_b --output one_vocabulary",
        "fusionlab vocab model_a model_b --base base_model --keep base --output one_vocabulary",
    ),
    "grow": (
        "fusionlab grow small --like large --output small_in_the_size_of_large",
        "fusionlab grow small --like larger/config.json --untie --output grown",
    ),
    "shrink": (
        "fusionlab shrink merged --like small --output merged_in_the_size_of_small",
        "fusionlab shrink merged --like small --polish 300 --probes pictures/ --output merged_in_the_size_of_small",
    ),
    "check": (
        "fusionlab check model_a model_b",
        "fusionlab check model_a model_b --base base_model --output merged --values",
    ),
    "inspect": ("fusionlab inspect model_a", "fusionlab inspect model_a --picture symmetry.png"),
    "completion": ("fusionlab completion bash", "fusionlab completion zsh"),
    "demo": ("fusionlab demo", "fusionlab demo --output demo --overwrite"),
}
# The heading of the options that most people use, and the order of groups; those of research come last.
COMMON = "Models and output"
_ORDER = ("positional arguments", COMMON, "Measuring", "Matching", "Merging", "options")


def arranged(help_text: str, command: str) -> str:
    """The help of a command with examples at the top, common options first and those of research last.

    Args:
        help_text: as the parser prints it.
        command: such as ``fuse``.
    """
    # The classes that happen to be imported are not those that there are.
    plain = re.sub(r",\s+known\s+subclasses:[^)]*\)", ")", help_text.rstrip())
    head, *sections = re.split(r"\n\n(?=\w[^\n]*:\n  )", plain)
    examples = "".join(f"  {line}\n" for line in EXAMPLES.get(command, ()))
    usage, _, description = head.partition("\n\n")
    if examples:
        usage = f"usage: fusionlab {command} [options]\n\nExamples:\n{examples.rstrip()}"
    return "\n\n".join([usage, *([description] if description else []), *sorted(sections, key=_rank)]) + "\n"


def _rank(section: str) -> int:
    heading = section.partition(":\n")[0]
    if heading == RESEARCH:
        return len(_ORDER) + 1
    return _ORDER.index(heading) if heading in _ORDER else len(_ORDER)
