"""`fusionlab fuse` without data of large folders a part at a time: it is `match` and then `merge`."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fusionlab import checkpoints
from fusionlab.commands import fuse, match_stream
from fusionlab.statistics.files import save
from fusionlab.statistics.gather import gather
from tests.commands.conftest import Command
from tests.commands.test_match_stream import model, saved


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large, and none may be read as a whole."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)


@pytest.fixture
def files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model may be read as a whole."""

    def read_all(*_: object) -> None:
        raise AssertionError("whole models were read")

    monkeypatch.setattr(fuse.parsing, "read_all", read_all)


@pytest.mark.usefixtures("files_alone")
@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ([], torch.bfloat16),
        (["--gauge", "balanced", "--rescale", "off"], torch.float32),
        (["--method", "ties"], torch.float32),
        (["--method", "circuit"], torch.float32),
        (["--method", "ot", "--hyperparameters.solver", "exact"], torch.float32),
    ],
    ids=["paper", "in a gauge", "task vectors", "circuits", "transport"],
)
def test_it_is_match_and_then_merge(tmp_path: Path, command: Command, options: list[str], dtype: torch.dtype) -> None:
    """The same bytes of weights, whatever is between; the second model is the anchor; nothing of the twins is left."""
    a, b, base = saved(tmp_path, *(model("LlamaForCausalLM", seed, dtype) for seed in range(3)))
    matching, merging = (options, []) if options[:1] != ["--method"] else ([], options)
    of_base = ["--base", base] if "ties" in merging else []
    line = ["--ckpts", a, b, "--match", "paper", "--anchor", 1, "--weights", 1, 3, *matching, *merging, *of_base]
    outcome = command("fuse", *line, "--output", tmp_path / "fused")
    assert (outcome.code, outcome.err) == (0, "")
    assert "never in memory as a whole" in outcome.out
    assert f"Written to {tmp_path / 'fused' / 'merged'}: " in outcome.out
    assert ("basis of the matched models, that of b" in outcome.out) == bool(of_base)
    assert "models trained apart (other seeds)" in outcome.out
    assert command("match", a, "--anchor", b, *matching, *of_base, "--output", tmp_path / "twins").code == 0
    twins = [tmp_path / "twins" / "a", tmp_path / "twins" / "b"] if matching else [tmp_path / "twins", b]
    assert command("merge", *twins, "--weights", 1, 3, *merging, *of_base, "--output", tmp_path / "merged").code == 0
    fused, merged = (
        load_file(path / "model.safetensors") for path in (tmp_path / "fused" / "merged", tmp_path / "merged")
    )
    assert fused.keys() == merged.keys()
    for name, tensor in merged.items():
        # Computed twice: to rounding, which another order of sums may change.
        torch.testing.assert_close(fused[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
    found = {path.name for path in (tmp_path / "fused").iterdir()}
    assert {"merged", "report.html", "results.json", "fusionlab.yaml"} <= found
    assert "twins" not in found


def test_the_distances_are_those_of_whole_models(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after matching, and with them the merge, to rounding."""
    a, b = saved(tmp_path, model("LlamaForCausalLM", 0), model("LlamaForCausalLM", 1))
    totals, merges = [], []
    for name, least in (("parts", 0), ("memory", 2**60)):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        outcome = command("fuse", "--ckpts", a, b, "--match", "paper", "--json", "--output", tmp_path / name)
        assert (outcome.code, outcome.err) == (0, "")
        rows = json.loads((tmp_path / name / "results.json").read_text())
        totals.append([row["value"] for row in rows if row["metric"] == "distance_to_anchor"])
        merges.append(load_file(tmp_path / name / "merged" / "model.safetensors"))
    assert len(totals[0]) == 2
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)
    for name, tensor in merges[1].items():
        torch.testing.assert_close(merges[0][name], tensor, rtol=2e-4, atol=2e-4)


def measured(folder: Path, *ckpts: Path) -> list[Path]:
    """Files of statistics of models."""
    files = []
    for seed, path in enumerate(ckpts):
        words = torch.randint(0, 50, (4, 9), generator=torch.Generator().manual_seed(seed))
        files.append(folder / f"{path.name}.stats")
        save(gather(checkpoints.load(path), [{"input_ids": words}], ("gram", "fisher")), files[-1])
    return files


@pytest.mark.parametrize("options", [[], ["--gauge", "folded,biases,balanced", "--rescale", "off"]], ids=str)
def test_by_statistics_it_is_the_merge_of_whole_models(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Gram matrices move with the twins, to rounding; Fisher information does not, which is one sentence both ways."""
    ckpts = saved(tmp_path, *(model("LlamaForCausalLM", seed, attention_bias=True) for seed in range(2)))
    line = ["fuse", "--ckpts", *ckpts, "--match", "paper", *options, "--statistics", *measured(tmp_path, *ckpts)]
    merges, refused = [], []
    for name, least in (("parts", 0), ("memory", 2**60)):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        outcome = command(*line, "--method", "regmean", "--output", tmp_path / name)
        assert (outcome.code, outcome.err) == (0, "")
        assert ("never in memory as a whole" in outcome.out) == (name == "parts")
        merges.append(load_file(tmp_path / name / "merged" / "model.safetensors"))
        outcome = command(*line, "--method", "fisher", "--output", tmp_path / "fisher")
        assert outcome.code == 2
        refused.append(outcome.err)
    for name, tensor in merges[1].items():
        torch.testing.assert_close(merges[0][name], tensor, rtol=1e-3, atol=1e-3, msg=name)
    assert refused[0] == refused[1]
    assert "fisher statistics of each model are needed; expected data" in refused[0]
    assert not (tmp_path / "fisher").exists()


def test_where_whole_models_are_held(tmp_path: Path, command: Command) -> None:
    """Another matcher, and a mean of more than two models, are for models in memory, which the report says."""
    models = saved(tmp_path, *(model("LlamaForCausalLM", seed) for seed in range(3)))
    for ckpts, options, words in (
        (models[:2], ["--match", "git-rebasin"], "looks at whole models"),
        (models, ["--match", "paper", "--towards", "mean"], "more than two are matched to their mean"),
    ):
        line = ["fuse", "--ckpts", *ckpts, *options, "--overwrite", "--output", tmp_path / "fused"]
        outcome = command(*line)
        assert outcome.code == 0, outcome.err
        assert "Whole models were held in memory: " in outcome.out
        assert words in " ".join(outcome.out.split())


def near(tmp_path: Path, count: int) -> list[Path]:
    """Fine-tunes of one model, the last as it was."""
    made = [model("LlamaForCausalLM", 0) for _ in range(count)]
    for seed, one in enumerate(made[:-1]):
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=draw))
    return saved(tmp_path, *made)


@pytest.mark.usefixtures("files_alone")
@pytest.mark.parametrize("options", [[], ["--method", "ties"], ["--match", "none"]])
def test_fine_tunes_are_merged_from_their_files(tmp_path: Path, command: Command, options: list[str]) -> None:
    """By default advice looks at files, chooses that nothing is matched, and the weights are those of `merge`."""
    a, b, base = near(tmp_path, 3)
    merging = [*options, "--base", base] if "--method" in options else []
    outcome = command("fuse", "--ckpts", a, b, *options, *merging[2:], "--output", tmp_path / "fused")
    assert (outcome.code, "Traceback" in outcome.err) == (0, False), outcome.err
    assert ("So nothing was matched (match: auto)." in outcome.out) == ("--match" not in options)
    assert "so nothing was measured. Models and merge were never in memory as a whole" in outcome.out
    assert command("merge", a, b, *merging, "--output", tmp_path / "merged").code == 0
    fused, merged = (
        load_file(path / "model.safetensors") for path in (tmp_path / "fused" / "merged", tmp_path / "merged")
    )
    assert fused.keys() == merged.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(fused[name], tensor, rtol=1e-6, atol=1e-7, msg=name)
    said = (tmp_path / "fused" / "merged" / "README.md").read_text()
    assert ("none, chosen by auto (nothing is matched)" in said) == ("--match" not in options)


@pytest.mark.usefixtures("files_alone")
def test_what_advice_chooses_for_models_that_were_trained_apart(tmp_path: Path, command: Command) -> None:
    """They are matched by weights, where they lie."""
    a, b = saved(tmp_path, model("LlamaForCausalLM", 0), model("LlamaForCausalLM", 1))
    outcome = command("fuse", "--ckpts", a, b, "--output", tmp_path / "fused")
    assert outcome.code == 0, outcome.err
    assert "never in memory as a whole" in outcome.out
    assert "(match: auto)" in outcome.out


def test_bad_hyperparameters_are_refused_before_matching(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that no parameter has is refused when nothing has been matched yet."""
    a, b, base = saved(tmp_path, *(model("LlamaForCausalLM", seed) for seed in range(3)))
    monkeypatch.setattr(match_stream.Twins, "make", lambda *_: pytest.fail("was matched"))
    pattern = ["--method", "task_arithmetic", "--base", base, "--hyperparameters.lambda_", '{"nothing.*": 0.5}']
    outcome = command("fuse", "--ckpts", a, b, "--match", "paper", *pattern, "--output", tmp_path / "fused")
    assert (outcome.code, "the pattern 'nothing.*', which matches no parameter" in outcome.err) == (2, True), (
        outcome.err
    )
