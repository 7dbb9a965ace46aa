"""``~`` and variables in inputs, outputs and configs alike, also where no shell has seen them."""

from pathlib import Path

import pytest
import yaml

from fusionlab import checkpoints
from fusionlab.configs import resolve
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from tests.commands.conftest import Command, ckpts, command  # noqa: F401
from tests.commands.small import bert


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, a variable that names a folder, and a working folder where no strange folder may appear."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNS", str(tmp_path / "home" / "runs"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~", "{home}"),
        ("~/x", "{home}/x"),
        ("$RUNS/x", "{home}/runs/x"),
        ("${RUNS}x/$RUNS", "{home}/runsx/{home}/runs"),
        ("a~/b", "a~/b"),
        ("google/vit-base", "google/vit-base"),
        ("cost$", "cost$"),
        ("$", "$"),
    ],
)
def test_expanded(home: Path, text: str, path: str) -> None:
    """As the shell does; what it would leave is left."""
    assert expanded(text) == expanded(Path(text)) == Path(path.format(home=home))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$NO_SUCH/x", "variable NO_SUCH, which is not set"),
        ("${NO_SUCH}", "variable NO_SUCH, which is not set"),
        ("~nobody_here/x", "home folder ~nobody_here, which is not known"),
        ("a\0b", "null character"),
    ],
)
def test_what_stands_for_nothing_is_refused(home: Path, text: str, words: str) -> None:
    """Rather than taken for a name."""
    with pytest.raises(InputError, match=words.replace("$", r"\$")):
        expanded(text)


def test_a_file_with_such_a_name(home: Path) -> None:
    """Is what it says: where no variable is called so, and with ``./`` before it, however often it is looked at."""
    Path("price_$USD").touch()
    assert expanded("price_$USD") == Path("price_$USD")
    assert expanded("./~/x") == expanded(expanded("./~/x")) == Path.cwd() / "~" / "x"


def test_every_place(home: Path, command: Command) -> None:  # noqa: F811
    """Checkpoints in and out of a command's config, which is itself named so; the working folder stays empty."""
    for seed, name in enumerate("ab"):
        checkpoints.save(bert(seed), f"~/{name}")
    config = {"ckpts": ["~/a", "${HOME}/b"], "output": "$RUNS/merged"}
    (home / "merge.yaml").write_text(yaml.safe_dump(config))
    assert resolve("~/merge") == home / "merge.yaml"
    outcome = command("merge", "~/a", "$HOME/b", "--output", "$RUNS/merged")
    assert (outcome.code, outcome.err) == (0, "")
    checkpoints.load("$RUNS/merged")
    checkpoints.load(home / "runs" / "merged")
    outcome = command("fuse", "--config", "~/merge.yaml")
    assert outcome.code == 2
    assert f"{home}/runs/merged exists already" in outcome.err
    outcome = command("merge", "~/a", "~/c", "--output", "$NO_SUCH/merged")
    assert outcome.code == 2
    assert "NO_SUCH" in outcome.err
    assert not list((home.parent / "work").iterdir())
