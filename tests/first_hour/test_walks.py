"""What the pages tell a newcomer to do is done, on small models made from configs."""

from pathlib import Path

import pytest

from fusionlab.cli import main
from tests.first_hour.stand_ins import make
from tests.first_hour.walks import DOCS, PAGES, smaller, steps
from tests.pictures import small_pictures

__all__ = ["small_pictures"]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make(folder)
    return folder


@pytest.fixture
def at_home(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which the pages' names lead to the small models."""
    for path in models.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_done_to_the_letter(page: str, at_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every command ends well and writes its output; what is written can be used as the page says."""
    done = steps(page)
    for step in done:
        if step.kind == "file":
            Path(step.words[0]).write_text(step.words[1], encoding="utf-8")
        elif step.kind == "script":
            exec(step.words[0], {})
        else:
            assert main(smaller(step.words)) == 0, (step.words, capfd.readouterr().err)
    outputs = [step.words[step.words.index("--output") + 1] for step in done if "--output" in step.words]
    assert outputs
    assert all(Path(output).exists() for output in outputs)
    for folder in outputs:
        if Path(folder, "report.html").exists():
            assert Path(folder, "merged", "model.safetensors").exists()


def test_walks_are_short() -> None:
    """A merge that is measured after three commands at most."""
    for page in (page for page in PAGES if page.startswith("start/")):
        commands = [step.words[0] for step in steps(page) if step.kind == "command"]
        assert "fuse" in commands[:3], page


def test_pages_say_what_their_readers_have() -> None:
    """Every path that a walk reads is named in the list of what one has."""
    for page in ("start/two_text_classifiers.md", "start/two_llamas.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        listed = text.split("```\n")[1]
        for step in steps(page):
            paths = [word for word in step.words if word.startswith(("models/", "adapters/"))]
            assert all(f"{path}/" in listed for path in paths), (page, paths)
