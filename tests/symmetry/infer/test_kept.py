"""Blueprints kept on disk: found again where nothing changed, inferred anew where anything did, never in the way."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.infer import kept, models
from fusionlab.symmetry.infer.values import RULES
from tests.symmetry.fields import every_field

SIZES = {"hidden_size": 24, "n_layer": 1, "n_head": 3, "vocab_size": 53}


# What was inferred for a key, once for all tests: they are about what is kept of it.
FOUND: dict[str, Blueprint] = {}


def bloom(**changes: int) -> transformers.BloomForCausalLM:
    return transformers.BloomForCausalLM(transformers.BloomConfig(**{**SIZES, **changes}))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and a process that knows nothing yet."""
    monkeypatch.setenv("FUSIONLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "KNOWN", {})
    described = models.described

    def once(model: nn.Module, example: dict[str, torch.Tensor] | None) -> Blueprint:
        key = f"{models.key_of(model)} {example is not None}"
        if key not in FOUND:
            FOUND[key] = described(model, example)
        return FOUND[key]

    monkeypatch.setattr(models, "described", once)
    return tmp_path / "cache" / "blueprints"


@pytest.fixture
def inferring(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is inferred, by class name, from now on."""
    calls: list[str] = []
    found = models.described

    def counted(model: nn.Module, *arguments: object) -> Blueprint:
        calls.append(type(model).__name__)
        return found(model, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "described", counted)
    return calls


def later(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Blueprint:
    """The blueprint that a process which has just started finds."""
    monkeypatch.setattr(models, "KNOWN", {})
    return models.inferred(model)


def test_a_later_process_reads_what_an_earlier_one_inferred(
    folder: Path, inferring: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = models.inferred(bloom())
    (file,) = folder.iterdir()
    assert json.loads(file.read_text().splitlines()[1])["architecture"] == "bloom"
    again = later(bloom(), monkeypatch)
    assert inferring == ["BloomForCausalLM"]
    assert again is not first
    assert every_field(again) == every_field(first)
    assert len(list(folder.iterdir())) == 1


def test_another_process_finds_it_by_the_same_name(folder: Path) -> None:
    """Its name depends on nothing of one process: hash seeds, addresses."""
    model = bloom()
    place = kept.place(model, models.key_of(model))
    code = (
        "import transformers; from fusionlab.symmetry.infer import kept, models;"
        f"model = transformers.BloomForCausalLM(transformers.BloomConfig(**{SIZES}));"
        "print(kept.place(model, models.key_of(model)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": str(Path(__file__).parents[3])}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(place)


def test_whatever_a_blueprint_follows_from_names_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The config, the versions of all packages, and every source of fusionlab.symmetry."""

    def name(model: nn.Module) -> str:
        place = kept.place(model, models.key_of(model))
        assert place is not None
        return place.name

    model = bloom()
    names = [name(model), name(bloom(vocab_size=54)), name(bloom(n_head=4))]
    version = kept.version_of
    for package in ("torch", "transformers", "fusionlab"):
        monkeypatch.setattr(kept, "version_of", lambda asked, p=package: "9.9" if asked == p else version(asked))
        names.append(name(model))
    monkeypatch.setattr(kept, "version_of", version)
    monkeypatch.setattr(kept, "digest_of_sources", lambda: "others")
    names.append(name(model))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("changed", ["axes.py", "infer/rules/pointwise.py", "groups/new.py"])
def test_the_digest_is_of_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    root = Path(kept.__file__).parents[1]
    shutil.copytree(root, tmp_path / "symmetry")
    monkeypatch.setattr(kept, "__file__", str(tmp_path / "symmetry" / "infer" / "kept.py"))
    digest = kept.digest_of_sources.__wrapped__
    before = digest()
    with (tmp_path / "symmetry" / changed).open("a") as file:
        file.write("# another\n")
    assert digest() != before


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n{}", b"\xff\xfe\0", b"cbuiltins\nexec\n(S'1'\ntR.", b"[" * 100_000],
    ids=["empty", "foreign", "no text", "pickle", "nested"],
)
def test_a_file_that_is_not_ours_is_written_over(
    folder: Path, inferring: list[str], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    expected = models.inferred(bloom())
    (file,) = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(content)
    assert every_field(later(bloom(), monkeypatch)) == every_field(expected)
    assert len(inferring) == 2
    assert file.read_bytes() == good


def test_no_damage_is_taken_for_a_blueprint(folder: Path) -> None:
    """A file cut anywhere, or with any one letter changed, counts as none."""
    model = bloom()
    models.inferred(model)
    (file,) = folder.iterdir()
    good, state = file.read_bytes(), model.state_dict()
    assert kept.read(file, state) is not None
    generator = torch.Generator().manual_seed(0)
    for place in [0, 5, 70, 77, 78, 79, 80, *torch.randint(len(good), (60,), generator=generator).tolist()]:
        for damaged in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            file.write_bytes(damaged)
            assert kept.read(file, state) is None, place


def test_a_sound_file_of_another_model_is_not_taken(folder: Path) -> None:
    models.inferred(bloom())
    (file,) = folder.iterdir()
    assert kept.read(file, bloom().state_dict()) is not None
    assert kept.read(file, bloom(vocab_size=54).state_dict()) is None


@pytest.mark.parametrize("kind", ["a file", "a folder in place of a file", "a pipe in place of a file", "no home"])
def test_a_cache_that_cannot_be_used_is_none(
    folder: Path, inferring: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """No error, no waiting, and nothing written elsewhere."""
    model = bloom()
    place = kept.place(model, models.key_of(model))
    assert place is not None
    if kind == "a file":
        folder.parent.write_text("mine")
    elif kind == "no home":
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
        monkeypatch.delenv("FUSIONLAB_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert kept.folder() is None
    else:
        folder.mkdir(parents=True)
        place.mkdir() if "folder" in kind else os.mkfifo(place)
    before = sorted(tmp_path.rglob("*"))
    assert later(model, monkeypatch).spaces
    assert later(model, monkeypatch).spaces
    # What may be replaced is: a pipe's name is taken by the file.
    assert len(inferring) == (1 if "pipe" in kind else 2)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_may_be_other_code_tomorrow_is_not_kept(
    folder: Path, inferring: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of one's own, also inside of a model of transformers; hooks; forwards that were replaced; own rules."""

    class Own(transformers.BloomForCausalLM):
        pass

    class Other(nn.Linear):
        pass

    def hook(*_: object) -> None:
        return None

    models.inferred(Own(bloom().config))
    inside, hooked, replaced, own_rule = (bloom(vocab_size=size) for size in (54, 55, 56, 57))
    inside.lm_head = Other(24, 54, bias=False)
    hooked.register_forward_pre_hook(hook)
    replaced.lm_head.forward = lambda x: nn.functional.linear(x, replaced.lm_head.weight)
    for model in (inside, hooked, replaced):
        assert kept.place(model, "key") is None
    monkeypatch.setitem(RULES, "addr", hook)
    assert kept.place(own_rule, "key") is None
    monkeypatch.delitem(RULES, "addr")
    assert kept.place(own_rule, "key") is not None
    assert not folder.exists()
    assert inferring == ["Own"]


@pytest.mark.parametrize(
    ("found", "kept_by"), [("5.0.dev1", None), ("5.0", "5.0"), ("5.0+cpu", "5.0+cpu"), ("?", None)]
)
def test_a_version_that_is_still_worked_on_stands_for_no_code(
    monkeypatch: pytest.MonkeyPatch, found: str, kept_by: str | None
) -> None:
    monkeypatch.setattr(kept.importlib.metadata, "version", lambda package: found)
    assert kept.version_of.__wrapped__("transformers") == kept_by


def test_what_an_example_showed_stays_in_its_process(folder: Path) -> None:
    model = bloom()
    ids = torch.randint(3, 53, (2, 7), generator=torch.Generator().manual_seed(0))
    models.inferred(model, {"input_ids": ids})
    assert not folder.exists()


def test_the_folder_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go, never the one just written; what a killed process left goes after an hour; strangers stay."""
    monkeypatch.setattr(kept, "MOST_FILES", 3)
    one = Blueprint("one", {}, {})
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    for name, age in (("old", 7200), ("new", 60)):
        (folder / f"{kept.UNFINISHED}{name}").write_text("{")
        os.utime(folder / f"{kept.UNFINISHED}{name}", (kept.time.time() - age,) * 2)
    for number in range(5):
        kept.write(folder / f"{number}.json", one)
        # The clock of another machine: all others seem younger than the one that is written next.
        os.utime(folder / f"{number}.json", (kept.time.time() + 1000 + number,) * 2)
    assert {file.name for file in folder.iterdir()} == {
        "2.json", "3.json", "4.json", "notes.txt", f"{kept.UNFINISHED}new",
    }  # fmt: skip
    size = (folder / "4.json").stat().st_size
    monkeypatch.setattr(kept, "MOST_BYTES_TOGETHER", 2 * size)
    kept.write(folder / "5.json", one)
    assert {file.name for file in folder.glob("*.json")} == {"4.json", "5.json"}


def test_a_blueprint_beyond_any_size_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config may say anything; the disk is not filled with it."""
    one = Blueprint("one", {}, {}, notes=("x" * 1000,))
    monkeypatch.setattr(kept, "MOST_BYTES", 1000)
    kept.write(folder / "one.json", one)
    assert not folder.exists()
    monkeypatch.setattr(kept, "MOST_BYTES", 2000)
    kept.write(folder / "one.json", one)
    assert kept.read(folder / "one.json", {}) is not None
    monkeypatch.setattr(kept, "MOST_BYTES", 100)
    assert kept.read(folder / "one.json", {}) is None


def test_the_folder_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setenv("FUSIONLAB_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert kept.folder() == tmp_path / "own" / "blueprints"
    monkeypatch.setenv("FUSIONLAB_CACHE", "")
    assert kept.folder() == tmp_path / "caches" / "fusionlab" / "blueprints"
    # A relative one is to be ignored (XDG Base Directory Specification).
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert kept.folder() == tmp_path / "home" / ".cache" / "fusionlab" / "blueprints"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert kept.folder() == tmp_path / "home" / ".cache" / "fusionlab" / "blueprints"


def test_the_run_has_a_cache_of_its_own() -> None:
    """No test reads or writes the user's."""
    found = kept.folder()
    assert found is not None
    assert re.match(r"fusionlab-tests-", found.parent.name)
    assert found.parent.is_dir()
