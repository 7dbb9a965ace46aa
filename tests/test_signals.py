"""An interruption at any moment ends in one line and the code of its signal, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch

from fusionlab import cli, signals
from fusionlab.atomic import atomic_folder
from tests.forked import Child

LINES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "its terminal was closed"}


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> Callable[[], int]:
    """What runs ``fusionlab merge`` with something else for its work."""
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(run=lambda rest: run()))
    return lambda: cli.main(["merge"])


def line(number: int) -> str:
    return f"fusionlab merge: {LINES[signal.Signals(number)]}; nothing was written half\n"


@pytest.mark.parametrize("number", LINES)
def test_a_signal_while_an_output_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int) -> None:
    """Its line, 128 and its number, and no temporary output; the parents that were made are gone too."""

    def work() -> None:
        with atomic_folder(tmp_path / "deep" / "out") as folder:
            (folder / "part").write_text("half")
            time.sleep(60)

    child = Child(command(monkeypatch, work))
    while not list(tmp_path.glob("deep/.out*/part")):
        time.sleep(0.01)
    child.send(number)
    ended = child.end()
    assert (ended.code, ended.out, ended.err) == (128 + number, "", line(number))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_lightning_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int) -> None:
    """The same: Lightning makes exit code 1 of a KeyboardInterrupt, and puts a handler of its own before ours."""

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            if index == 3:
                os.kill(os.getpid(), number)
            return self.layer(batch).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    def work() -> None:
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=1000, logger=False, enable_checkpointing=False, default_root_dir=tmp_path,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        try:
            trainer.fit(Module(), torch.utils.data.DataLoader(torch.zeros(20, 1)))
        except BaseException as error:
            (tmp_path / type(error).__name__).touch()
            raise

    ended = Child(command(monkeypatch, work)).end()
    assert ended.code == 128 + number
    assert [text for text in ended.err.splitlines() if text.startswith("fusionlab")] == [line(number).strip()]
    assert "Traceback" not in ended.err
    assert "KeyboardInterrupt" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["Interrupted"], "Lightning makes another of what it knows"


def test_more_signals_do_not_break_what_the_first_one_began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cleaning up goes on to its end."""

    def work() -> None:
        try:
            (tmp_path / "begun").touch()
            time.sleep(60)
        finally:
            for _ in range(5):
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
            (tmp_path / "cleaned").touch()

    child = Child(command(monkeypatch, work))
    child.wait_for(tmp_path / "begun")
    child.send(signal.SIGINT)
    ended = child.end()
    assert (ended.code, ended.err) == (130, line(signal.SIGINT))
    assert (tmp_path / "cleaned").exists()


def test_code_that_swallows_a_signal_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the time of grace, its temporary outputs removed."""
    monkeypatch.setattr(signals, "GRACE", 0.2)

    def work() -> None:
        with atomic_folder(tmp_path / "out"):
            (tmp_path / "begun").touch()
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    continue

    child = Child(command(monkeypatch, work))
    child.wait_for(tmp_path / "begun")
    child.send(signal.SIGTERM)
    ended = child.end()
    assert (ended.code, ended.err) == (143, line(signal.SIGTERM))
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_an_output_is_not_put_in_place_after_a_swallowed_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever swallowed it: a destructor, for example, lets no exception out, and says so with a traceback."""

    class Destroyed:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    def work() -> None:
        with atomic_folder(tmp_path / "out") as folder:
            (folder / "part").touch()
            destroyed = Destroyed()
            del destroyed

    def run() -> int:
        sys.unraisablehook = sys.__unraisablehook__  # not that of the tests
        return command(monkeypatch, work)()

    ended = Child(run).end()
    assert (ended.code, ended.err) == (130, line(signal.SIGINT))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports(tmp_path: Path, number: int) -> None:
    """In a process of its own, that waits while it imports torch: one line, and the code, whatever the import does."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'importing')!r}).touch()\n"
        "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass\n"
    )
    root = str(Path(cli.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "fusionlab", "merge", "a", "b"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    start = time.monotonic()
    while not (tmp_path / "importing").exists():
        assert time.monotonic() < start + 60
        time.sleep(0.01)
    process.send_signal(number)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < signals.GRACE / 2
    assert (process.returncode, out, err) == (128 + number, "", line(number))


def test_handlers_are_given_back_and_children_have_those_from_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A forked worker of a data loader is no command: a signal to it gives no line of ours."""
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        assert signal.getsignal(signal.SIGINT) is not before
        child = os.fork()
        if child == 0:
            os._exit(signal.getsignal(signal.SIGINT) is before and signals.Watch.current is None)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

    assert command(monkeypatch, work)() == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_signal_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``nohup`` and the shell's ``&`` ask for."""

    def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.01)

    def ignoring() -> int:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return command(monkeypatch, work)()

    ended = Child(ignoring).end()
    assert (ended.code, ended.err) == (0, "")


def test_a_program_that_runs_a_command_goes_on_after_its_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is handed back, and nothing ends the program later."""
    monkeypatch.setattr(signals, "GRACE", 0.1)

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    def program() -> int:
        code = command(monkeypatch, work)()
        time.sleep(0.5)
        return code + 1

    assert Child(program).end().code == 131


LATE = {
    "at exit": "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(9)))",
    "without modules": (
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT, sleep=time.sleep):\n"
        "        kill(pid, number), sleep(0.1)\n"
        "late = Late()"
    ),
}


@pytest.mark.parametrize("moment", LATE)
@pytest.mark.parametrize(("words", "code"), [("'--version'", 0), ("'no-command'", 2)])
def test_a_signal_while_python_ends(moment: str, words: str, code: int) -> None:
    """After the work is done its code stays, and there is no traceback either."""
    program = (
        "import atexit, os, signal, sys, time\n"
        "from fusionlab.cli import main\n"
        f"sys.argv = ['fusionlab', {words}]\n"
        f"code = main()\n{LATE[moment]}\n"
        "sys.exit(code)\n"
    )
    start = time.monotonic()
    found = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert found.returncode == code
    assert "Traceback" not in found.stderr
    assert "interrupted" not in found.stderr
    assert time.monotonic() - start < 9
