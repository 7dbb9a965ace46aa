"""The first hour from the wheel: built, looked into, installed where nothing of the checkout is, and walked through.

``python -m tests.first_hour`` is ``make wheel``. Only what builds the wheel may be downloaded: what fusionlab needs
is lent by the environment that runs this.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

from tests.first_hour.stand_ins import make
from tests.first_hour.walks import PAGES, smaller, steps

ROOT = Path(__file__).parents[2]
# What an sdist holds at its top; the rest of the checkout is work that goes on.
SDIST = {
    "PKG-INFO",
    ".gitignore",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "fusionlab",
    "configs",
}
# The demo in a tenth of its time, and a merge of what it trained.
DEMO = (
    ("demo", "--epochs", "1", "--output", "demo"),
    ("merge", "demo/end_models/seed_1", "demo/end_models/seed_2", "--output", "two"),
)


def run(*words: object, **settings: object) -> str:
    """What a program prints.

    Raises:
        SystemExit: it failed; with what it said.
    """
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return str(done.stdout)


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of the checkout; the wheel is made from the sdist, so nothing is missing there."""
    run(sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def look_into(wheel: Path, sdist: Path) -> None:
    """Both hold what the package is made of, and nothing else.

    Raises:
        SystemExit: names what is missing or too much.
    """
    tracked = run("git", "ls-files", "fusionlab", "configs", cwd=ROOT).split()
    configs = {name for name in tracked if name.startswith("configs/")}
    package = set(tracked) - configs
    expected = package | {f"fusionlab/shipped_{name}" for name in configs}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        inside = {Path(name).parts[1:] for name in archive.getnames()}
    tops = {parts[0] for parts in inside if parts}
    for kind, wrong in (
        ("wheel", expected ^ found),
        ("sdist", SDIST ^ tops),
        ("sdist", set(tracked) - {"/".join(p) for p in inside}),
    ):
        if wrong:
            sys.exit(f"the {kind} lacks, or has beside what it should: {', '.join(sorted(wrong))}")
    print(
        f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 2**20:.2f} MiB; {sdist.name}: {len(inside)} entries"
    )


def installed(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel; other packages are found where the running Python has them, after its own."""
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A plain path, so that .pth files there, which lead to the checkout, are not read.
    (own / "lent.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n", encoding="utf-8"
    )
    place = run(python, "-c", "import fusionlab; print(fusionlab.__file__)", cwd=folder, env=clean()).strip()
    if not Path(place).is_relative_to(folder):
        sys.exit(f"fusionlab is imported from {place}; expected it from {own}")
    return folder / "bin" / "fusionlab"


def typed(command: Path, folder: Path) -> float:
    """A type checker takes the installed package for typed, and the public names for what they are.

    Returns:
        The seconds that it took.
    """
    script, start = folder / "typed.py", time.perf_counter()
    shutil.copy(ROOT / "tests" / "first_hour" / "typed.py", script)
    options = ("--strict", "--ignore-missing-imports", "--cache-dir", folder / "types")
    run(
        *(sys.executable, "-m", "mypy", *options, "--python-executable", command.parent / "python", script),
        cwd=folder,
        env=clean(),
    )
    return time.perf_counter() - start


def clean() -> dict[str, str]:
    """The environment's variables without what would lead to the checkout or to the network."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"HF_HUB_OFFLINE": "1", "PYTHONNOUSERSITE": "1"}


def walk(command: Path, page: str, folder: Path) -> tuple[int, float]:
    """Do what a page says; returns the number of commands and the seconds that they took."""
    make(folder)
    count, start = 0, time.perf_counter()
    for step in steps(page):
        if step.kind == "file":
            (folder / step.words[0]).write_text(step.words[1], encoding="utf-8")
        elif step.kind == "script":
            run(command.parent / "python", "-c", step.words[0], cwd=folder, env=clean())
        else:
            run(command, *smaller(step.words), cwd=folder, env=clean())
            count += 1
    return count, time.perf_counter() - start


def main() -> None:
    """Build, look, install, and walk; the exit code is 0 if all went well."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    with tempfile.TemporaryDirectory(prefix=f"{project}-first-hour-") as name:
        folder = Path(name)
        wheel, sdist = build(folder / "dist")
        look_into(wheel, sdist)
        command = installed(wheel, folder / "environment")
        start = time.perf_counter()
        help_text = run(command, "--help", cwd=folder, env=clean())
        print(f"fusionlab --help: {len(help_text.splitlines())} lines, {time.perf_counter() - start:.2f} s")
        print(f"mypy --strict on the public names: {typed(command, folder):.0f} s")
        start = time.perf_counter()
        for words in DEMO:
            run(command, *words, cwd=folder, env=clean())
        rows = json.loads((folder / "demo" / "results.json").read_text(encoding="utf-8"))
        print(f"demo of one epoch and a merge: {len(rows)} numbers, {time.perf_counter() - start:.0f} s")
        for page in PAGES:
            place = folder / Path(page).stem
            place.mkdir()
            count, seconds = walk(command, page, place)
            print(f"docs/{page}: {count} commands, {seconds:.0f} s")
    print("Everything was done from the wheel.")


if __name__ == "__main__":
    main()
