"""Options of the command line are the fields of options classes, told by their docstrings."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import pytest

import fusionlab
from fusionlab.commands import matching_options, parsing
from fusionlab.commands.barrier import LineOptions
from fusionlab.commands.compare import RunOptions
from fusionlab.commands.data_options import InputOptions, MeasuringOptions
from fusionlab.commands.demo import DemoOptions
from fusionlab.commands.end_models import EndModelOptions
from fusionlab.commands.fuse_config import ResumeOptions
from fusionlab.commands.gather import GatherOptions
from fusionlab.commands.inspect import InspectOptions
from fusionlab.commands.match import TwinOptions
from fusionlab.commands.merging_options import MergingOptions
from fusionlab.commands.option_groups import add_fields, add_options, help_of, table, table_of, told_all
from fusionlab.commands.reproduce import ReproduceOptions
from fusionlab.errors import InputError
from fusionlab.experiment import Plan
from fusionlab.fusion import FusionPlan
from fusionlab.grid.design import Grid
from fusionlab.matching.options import MatchOptions, Selection
from fusionlab.matching.permutations import PermutationOptions
from fusionlab.matching.recipe import meanings, presets, recipe
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.polish import PolishOptions
from fusionlab.trainers import Devices
from tests.commands.conftest import Command
from tests.docs_tables import DOCS, TABLES, written


@dataclass(frozen=True)
class Colours:
    """What colours there are.

    Attributes:
        names: of the colours, at least 10 %
            of them ``red``.
        depth: in bits.
        finish: ``matt`` or ``off``.
    """

    names: tuple[str, ...] = ("red",)
    depth: int | None = None
    finish: Literal["matt", "off"] = "matt"


def test_a_class_becomes_options() -> None:
    """Types are as people write them; what is not given is None."""
    parser = parsing.make_parser("test", "")
    assert add_options(parser, {Colours: "painting"}) == ("names", "depth", "finish")
    parsed = parsing.parse(parser, ["--names", "red,blue", "--finish", "off"])
    assert (parsed.names, parsed.depth, parsed.finish) == ("red,blue", None, "off")
    told = " ".join(parser.format_help().split())
    assert "Of painting: of the colours, at least 10 % of them red." in told, told
    assert table({Colours: "painting"}).splitlines()[2:] == [
        "| `--names` | `painting` | `red` | Of the colours, at least 10 % of them `red`. |",
        "| `--depth` | `painting` |  | In bits. |",
        "| `--finish` | `painting` | `matt` | `matt` or `off`. |",
    ]
    with pytest.raises(KeyError, match="Colours does not say what shade is"):
        help_of(Colours, "shade")


@dataclass(frozen=True)
class Frame:
    """What holds a picture.

    Attributes:
        widths: of its sides.
        gilded: whether it shines.
        sizes: it comes in.
        made: by whom, and when.
        colour: see `Colours`.
    """

    widths: Sequence[float] | None = None
    gilded: bool = False
    sizes: tuple[int, ...] = (3,)
    made: dict[str, Any] = field(default_factory=dict)
    colour: Colours | str | None = None


def test_fields_of_a_class_become_options() -> None:
    """With its defaults, which a command may change: a sequence takes several values, a switch none."""
    parser = parsing.make_parser("test", "")
    add_fields(parser, Frame, ("widths", "gilded", "sizes", "made"), {"gilded": {"default": True}})
    given = parsing.parse(parser, [])
    assert (given.widths, given.gilded, given.sizes, given.made) == (None, True, [3], {})
    lines = ["--widths", "1", "2.5", "--gilded", "false", "--sizes", "[4, 5]", "--made.by", "hand"]
    given = parsing.parse(parser, lines)
    assert (given.widths, given.gilded, given.sizes, given.made) == ([1.0, 2.5], False, [4, 5], {"by": "hand"})
    assert parsing.parse(parser, ["--gilded"]).gilded is True
    assert "colour" not in given
    assert "Whether it shines. (type: bool, default: True)" in " ".join(parser.format_help().split())
    assert table_of((Frame, ("sizes", "gilded", "made")), (Colours, None), defaults={"gilded": True}).splitlines()[
        2:
    ] == [
        "| `--sizes` | `3` | It comes in. |",
        "| `--gilded` | `True` | Whether it shines. |",
        "| `--made` |  | By whom, and when. |",
        "| `--names` | `red` | Of the colours, at least 10 % of them `red`. |",
        "| `--depth` |  | In bits. |",
        "| `--finish` | `matt` | `matt` or `off`. |",
    ]


@dataclass(frozen=True)
class Parcel:
    """What is sent.

    Attributes:
        things: in it.
        to_whom: it goes.
        in_haste: whether it is sent today.
    """

    things: Sequence[str]
    to_whom: str
    in_haste: bool = False


def test_what_has_no_default_is_asked_for() -> None:
    """By its flag or its place; another way to write a flag gives the same value."""
    parser = parsing.make_parser("test", "")
    add_fields(parser, Parcel, changes={"in_haste": {"flags": ("--in-haste",)}}, positional=("things",))
    given = parsing.parse(parser, ["book", "pen", "--to_whom", "Ann"])
    assert (given.things, given.to_whom, given.in_haste) == (["book", "pen"], "Ann", False)
    for flag in ("--in_haste", "--in-haste"):
        assert parsing.parse(parser, ["book", "--to_whom", "Ann", flag]).in_haste is True
    with pytest.raises(InputError, match="to_whom"):
        parsing.parse(parser, ["book"])
    with pytest.raises(InputError, match="things"):
        parsing.parse(parser, ["--to_whom", "Ann"])
    lenient = parsing.make_parser("test", "")
    add_fields(lenient, Parcel, ("to_whom",), {"to_whom": {"default": "Ben"}})
    assert parsing.parse(lenient, []).to_whom == "Ben"
    words = "things (in it); to_whom (it goes); in_haste (whether it is sent today)."
    assert told_all(Parcel) == words


# What is no option of a class: the config itself; Lightning's seed, which may be a word; parts of a config, read alone.
BY_HAND = {
    "commands/parsing.py": ["--config"],
    "commands/lightning_cli.py": ["--seed_everything"],
    "commands/end_models.py": ["--model", "--data"],
}


def test_an_option_is_said_once() -> None:
    """No command declares one by hand: each is a field of a class, and that class's docstring has its words."""
    root, found = Path(fusionlab.__file__).parent, dict[str, list[str]]()
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            by_hand = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument")
            if by_hand and path.name != "option_groups.py":
                name = str(path.relative_to(root).as_posix())
                found.setdefault(name, []).append(ast.literal_eval(node.args[0]))
    assert found == BY_HAND


def test_presets_are_said_once() -> None:
    """Whatever has a name can be asked for, and the help of every command that matches says what it does."""
    assert list(meanings()) == list(presets())
    parser = parsing.make_parser("test", "")
    matching_options.add_matching(parser)
    # Lines are broken at hyphens too.
    shown = "".join(parser.format_help().split())
    for name, words in meanings().items():
        assert recipe(name) == presets()[name]
        assert "".join(f"{name} ({words})".replace("`", "").split()) in shown, name


KINDS = [
    MatchOptions, PermutationOptions, RefineOptions, PolishOptions, Selection, MergingOptions, FusionPlan, Plan,
    MeasuringOptions, InputOptions, GatherOptions, Devices, Grid, EndModelOptions, RunOptions, TwinOptions, LineOptions,
    InspectOptions, DemoOptions, ReproduceOptions, ResumeOptions, parsing.SharedOptions, parsing.CheckpointOptions,
    matching_options.PresetOptions,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_told(kind: type) -> None:
    for one in fields(kind):
        assert len(help_of(kind, one.name)) > 8


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--match", "weights", "--temperatures", "5", "--sweeps", "2"], {"temperatures": 5, "sweeps": 2}),
        (["--match", "learned", "--every", "0", "--edges", "0.5", "--general", "false"],
         {"every": 0, "edges": 0.5, "general": False}),
        (["--match", "learned", "--concentration", "4", "--layers", "1"], {"concentration": 4.0, "layers": "1"}),
        (["--match", "ot-fusion", "--objective", "cosine"], {"objective": "cosine"}),
        (["--match", "paper", "--rescale", "off", "--spaces", "ffn"], {"rescale": "off", "spaces": ("ffn",)}),
        (["--match", "weights", "--start", "as-is"], {"start": "as-is"}),
    ],
    ids=lambda given: given[1] if isinstance(given, list) else "",
)  # fmt: skip
def test_all_that_python_takes_the_command_line_takes(flags: Sequence[str], changes: dict[str, Any]) -> None:
    """The recipe of the flags is that of the call."""
    parser = parsing.make_parser("test", "")
    matching_options.add_matching(parser)
    parsed = parsing.parse(parser, flags)
    assert matching_options.matching_recipe(parsed) == recipe(flags[1], **changes)
    name = matching_options.matching_name(parsed)
    assert name.startswith(f"{flags[1]}, ")
    assert all(option in name for option in changes)


def test_an_option_of_another_preset_is_refused(command: Command, ckpts: Any, tmp_path: Any) -> None:
    line = ("match", ckpts / "a", "--anchor", ckpts / "b", "--output", tmp_path / "out", "--objective", "cosine")
    outcome = command(*line)
    assert outcome.code == 2
    assert "matching by paper has no option 'objective'" in outcome.err


@pytest.mark.parametrize("page", TABLES)
def test_the_docs_have_the_options_as_they_are(page: str) -> None:
    """``make tables`` writes them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == written(page, text)
