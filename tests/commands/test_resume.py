"""`merge --resume` and `match --resume` go on with complete files after a kill, and write the same bytes."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab.atomic import MANIFEST
from fusionlab.cli import main
from fusionlab.commands import match
from fusionlab.statistics.files import save
from fusionlab.statistics.gather import gather
from fusionlab.streaming import Manifest
from fusionlab.streaming.part_files import PARTS, PartFiles
from tests.commands.conftest import Command
from tests.forked import Child
from tests.parts import one_in


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two Llamas in several files each, and statistics of each."""
    folder = tmp_path_factory.mktemp("models")
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        model.save_pretrained(folder / name, max_shard_size="5KB")
        save(gather(model, [{"input_ids": torch.randint(0, 50, (2, 9))}]), folder / f"{name}.stats")
    assert len(list((folder / "a").glob("*.safetensors"))) > 3
    return [folder / name for name in "ab"]


def is_weights(file: str) -> bool:
    return "model" in file


def killed(arguments: Sequence[object], after: int) -> None:
    """A command that is killed once so many weight files are complete."""

    def work() -> int:
        add, done = Manifest.add, 0

        def told(self: Manifest, file: str, found: object) -> None:
            nonlocal done
            add(self, file, found)
            done += is_weights(file)
            if done == after:
                os.kill(os.getpid(), signal.SIGKILL)

        Manifest.add = told  # type: ignore[method-assign]
        return main([str(argument) for argument in arguments])

    ended = Child(work).end()
    assert ended.code == -signal.SIGKILL, ended.err


def contents(folder: Path) -> dict[Path, bytes]:
    """The bytes of all files that tell no times."""
    timed = ("report.html", "results.json", "results.csv", "events.out")
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(timed))
    return {path.relative_to(folder): path.read_bytes() for path in files}


def line(name: str, models: Sequence[Path]) -> list[object]:
    match = [models[0], "--anchor", models[1], "--match"]
    statistics = ["--statistics", *(model.with_suffix(".stats") for model in models)]
    return {
        "merge": ["merge", *models, "--max-shard-size", "6KB"],
        "match": ["match", *match, "paper", "--gauge", "balanced", "--rescale", "off"],
        "coupled": ["match", *match, "weights", "--start", "known"],
        "fuse": ["fuse", "--ckpts", *models, "--match", "paper", "--method", "regmean", *statistics],
    }[name]


@pytest.mark.parametrize(("name", "after"), one_in(2, [("merge", 2), ("match", 1), ("fuse", 9), ("coupled", 1)]))
def test_the_same_bytes_after_a_kill(
    models: list[Path], tmp_path: Path, command: Command, name: str, after: int
) -> None:
    """Complete files are taken up, not written again; nothing is left beside the output; the table is the same.

    Of a fusion twins are taken up too, which are gone at the end; its report tells the time that it took.
    """
    arguments = line(name, models)
    whole = command(*arguments, "--resume", "--output", tmp_path / "whole")
    assert (whole.code, whole.err) == (0, "")
    arguments += ["--resume", "--output", tmp_path / "out"]
    killed(arguments, after)
    (left,) = tmp_path.glob(".*")
    lines = [json.loads(line) for line in (left / MANIFEST).read_text().splitlines()]
    weights = [file for line in lines[1:] if is_weights(file := line["file"])]
    assert len(weights) == after
    kept = {file: (left / file).stat().st_ino for file in weights if not file.startswith("twins")}
    outcome = command(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]
    assert kept == {file: (tmp_path / "out" / file).stat().st_ino for file in kept}
    found, expected = (re.findall(r"\d+\.\d{4}\b", text) for text in (outcome.out, whole.out))
    assert found == expected


def test_kept_alignments_are_taken(
    models: list[Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part is matched anew of which an alignment is kept, as another machine might find another; `--push`
    is no other matching."""
    arguments = [*line("match", models), "--resume", "--output", tmp_path / "out"]
    killed(arguments, 12)
    (left,) = tmp_path.glob(".*")
    kept = {json.loads(line).get("file") for line in (left / MANIFEST).read_text().splitlines()}
    known = {index for index in range(50) if {f"{PARTS}/a/{index}-{side}.safetensors" for side in range(2)} <= kept}
    found: list[int] = []
    put = PartFiles.put

    def told(self: PartFiles, index: int, *rest: Any) -> None:
        found.append(index)
        put(self, index, *rest)

    monkeypatch.setattr(PartFiles, "put", told)
    monkeypatch.setattr(match, "refuse_unpushable", lambda *_: None)
    monkeypatch.setattr(match, "push_output", lambda *_: None)
    outcome = command(*arguments, "--push", "me/model")
    assert (outcome.code, outcome.err) == (0, "")
    assert len(known) > 1
    assert not known & set(found)


def test_another_merge_is_refused(models: list[Path], tmp_path: Path, command: Command) -> None:
    """The sentence names what differs, and what was left stays; without the option it is removed."""
    arguments = [*line("merge", models), "--output", tmp_path / "out"]
    killed([*arguments, "--resume"], 1)
    for changed, words in ((["--weights", "1", "3"], "weights differs"), (["--seed", "7"], "seed differs: 0 then, 7")):
        outcome = command(*arguments, "--resume", *changed)
        assert outcome.code == 2
        assert words in outcome.err
        assert len(list(tmp_path.glob(".*"))) == 1
    assert command(*arguments).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_statistics_are_refused(models: list[Path], tmp_path: Path, command: Command) -> None:
    """Of a fusion by files of statistics, one that was written anew."""
    arguments = [*line("fuse", models), "--resume", "--output", tmp_path / "out"]
    killed(arguments, 9)
    models[0].with_suffix(".stats").touch()
    outcome = command(*arguments)
    assert (outcome.code, "statistics differs" in outcome.err) == (2, True)


def test_where_there_is_nothing_to_go_on_with(models: list[Path], tmp_path: Path, command: Command) -> None:
    """Merges and matchings of whole models are refused with the reason."""
    output = ["--resume", "--output", tmp_path / "out"]
    outcome = command("merge", *models, "--probes", "synthetic", *output)
    assert (outcome.code, "holds whole models in memory" in outcome.err) == (2, True)
    outcome = command("match", models[0], "--anchor", models[1], "--match", "git-rebasin", *output)
    assert (outcome.code, "resume goes on with models that are matched a part at a time" in outcome.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
