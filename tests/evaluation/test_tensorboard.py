"""TensorBoard shows matched and unmatched runs over each other: same tags, the numbers of the results."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row
from fusionlab.evaluation.tensorboard import write_tensorboard
from tests.evaluation.examples import judged

POSITIONS = tuple(step / 10 for step in range(11))
MATCHINGS = (UNMATCHED, "paper", "paper, attention only")


def make(methods: tuple[str, ...] = ("simple",)) -> Results:
    models = ("one", "runs/two")
    results = Results("t", models)
    for name, value in zip(models, (0.957, 0.950), strict=True):
        results.rows.append(Row((name,), "end model", "-", "digits", "in", "accuracy", value))
    for index, matching in enumerate(MATCHINGS):
        for place, method in enumerate(methods):
            value = 0.1 * (index + 1) + 0.01 * place
            results.rows.append(Row(models, method, matching, "digits", "in", "accuracy", value))
        loss = tuple(0.1 + (index + 1) * t * (1 - t) for t in POSITIONS)
        accuracy = tuple(0.9 - index * t * (1 - t) for t in POSITIONS)
        results.curves.append(Curve(models[1], models[0], matching, "digits", "in", POSITIONS, loss, accuracy))
        if matching != UNMATCHED:
            results.distances.extend(
                Distance(models[1], models[0], matching, "ffn", layer, 5.0 + layer, 4.0 + layer - index)
                for layer in range(3)
            )
            results.distances.append(Distance(models[1], models[0], matching, "residual", None, 9.0, 8.0))
    return results


def read(folder: Path) -> dict[str, EventAccumulator]:
    runs = {path.name: EventAccumulator(str(path)) for path in folder.iterdir()}
    for run in runs.values():
        run.Reload()
    return runs


def scalars(run: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in run.Scalars(tag)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, EventAccumulator]:
    folder = tmp_path_factory.mktemp("logs")
    write_tensorboard(make(), folder)
    return read(folder)


def test_there_is_one_run_for_each_matching_and_end_model(runs) -> None:
    matchings = {"unmatched", "paper", "paper_attention_only"}
    assert set(runs) == matchings | {"end_model_one", "end_model_runs_two", "summary"}


def test_every_matching_has_the_same_tags(runs) -> None:
    tags = [set(runs[name].Tags()["scalars"]) for name in ("unmatched", "paper", "paper_attention_only")]
    assert tags[0] == tags[1] == tags[2]
    assert tags[0] == {
        "line/loss/digits", "line/accuracy/digits", "distance/ffn", "distance/residual/no layer",
        "merge/accuracy/digits",
    }  # fmt: skip


def test_the_lines_read_back_are_the_curves(runs) -> None:
    for name, curve in zip(("unmatched", "paper", "paper_attention_only"), make().curves, strict=True):
        assert scalars(runs[name], "line/loss/digits") == list(zip(range(0, 101, 10), curve.loss, strict=True))
        assert scalars(runs[name], "line/accuracy/digits") == list(zip(range(0, 101, 10), curve.score, strict=True))


def test_the_unmatched_run_shows_the_distance_before_and_the_others_after(runs) -> None:
    # In the order of the file: a chart leaves out steps that go back.
    assert scalars(runs["unmatched"], "distance/ffn") == [(0, 5), (1, 6), (2, 7)]
    assert scalars(runs["paper"], "distance/ffn") == [(0, 3), (1, 4), (2, 5)]
    assert scalars(runs["unmatched"], "distance/residual/no layer") == [(0, 9)]
    assert scalars(runs["paper"], "distance/residual/no layer") == [(0, 8)]


def test_models_in_a_gauge_have_a_run_of_their_own(tmp_path) -> None:
    """What the gauge alone changes lies beside what matching does; layers may be listed in any order."""
    distances = []
    for matching, far in (("weights", 3.0), ("learned", 2.0)):
        distances += [Distance("b", "a", matching, "ffn", n, 5.0 + n, far + n, 50.0 + n) for n in (2, 0, 1)]
    distances += [Distance("b", "a", "paper", "ffn", n, 50.0 + n, 40.0 + n) for n in (1, 2, 0)]
    write_tensorboard(Results("t", ("a", "b"), distances=distances), tmp_path)
    runs = read(tmp_path)
    found = {name: [value for _, value in scalars(run, "distance/ffn")] for name, run in runs.items() if name in {
        "unmatched", "unmatched_in_the_gauge_of_weights_and_learned", "weights", "learned", "paper",
    }}  # fmt: skip
    assert found == {
        "unmatched": [50, 51, 52],
        "unmatched_in_the_gauge_of_weights_and_learned": [5, 6, 7],
        "weights": [3, 4, 5],
        "learned": [2, 3, 4],
        "paper": [40, 41, 42],
    }
    assert [step for step, _ in scalars(runs["learned"], "distance/ffn")] == [0, 1, 2]


def test_merges_and_end_models_meet_in_one_chart(runs) -> None:
    assert scalars(runs["paper"], "merge/accuracy/digits") == [(0, 0.2)]
    assert scalars(runs["end_model_one"], "merge/accuracy/digits") == [(0, 0.957)]
    assert scalars(runs["end_model_runs_two"], "line/accuracy/digits") == [(0, 0.9), (100, 0.9)]


def test_figures_and_words_are_written_once(runs) -> None:
    tags = runs["summary"].Tags()
    assert {tag.split("/")[0] for tag in tags["images"]} == {"scores", "line", "distance"}
    assert any(tag.startswith("verdict") for tag in tags["tensors"])
    assert all(not runs[name].Tags()["images"] for name in runs if name != "summary")


def test_several_methods_have_a_tag_each(tmp_path) -> None:
    write_tensorboard(make(("simple", "regmean")), tmp_path)
    runs = read(tmp_path)
    for name in ("unmatched", "end_model_one"):
        assert {tag for tag in runs[name].Tags()["scalars"] if tag.startswith("merge")} == {
            "merge/accuracy/digits/simple", "merge/accuracy/digits/regmean",
        }  # fmt: skip
    assert scalars(runs["paper"], "merge/accuracy/digits/regmean") == [(0, 0.21)]


def test_matchings_whose_names_look_alike_on_disk_keep_their_own_run(tmp_path) -> None:
    results = Results("t", ("a", "b"))
    for matching, value in (("x/y", 0.1), ("x y", 0.2), ("summary", 0.3)):
        results.rows.append(Row(("a", "b"), "simple", matching, "d", "in", "accuracy", value))
    write_tensorboard(results, tmp_path)
    found = sorted(
        run.Scalars("merge/accuracy/d")[0].value
        for name, run in read(tmp_path).items()
        if "merge/accuracy/d" in run.Tags()["scalars"]
    )
    assert found == pytest.approx([0.1, 0.2, 0.3])


def test_what_matching_changes_is_a_table(tmp_path) -> None:
    """One line for each comparison, with its interval."""
    results = judged({("simple", UNMATCHED): 0.3, ("simple", "paper"): 0.5})
    write_tensorboard(results, tmp_path)
    (event,) = read(tmp_path)["summary"].Tensors("what matching changes/text_summary")
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("| models | data set | metric | method | matching | unmatched | matched | change | 95 %")
    accuracy = next(found for found in results.comparisons if found.metric == "accuracy")
    assert accuracy.lower is not None
    assert f"| 30.0 | 50.0 | +20.0 | +{100 * accuracy.lower:.1f} to +" in lines[2]
    assert lines[2].endswith("| 400 examples |")


def test_the_tab_of_hyperparameters_has_a_row_for_each(runs) -> None:
    """Of each matching and end model, as what it is, with its scores; the summary is no row."""
    said = {}
    for name, run in runs.items():
        plugin = run.summary_metadata.get("_hparams_/session_start_info")
        if plugin is None:
            continue
        content = HParamsPluginData.FromString(plugin.plugin_data.content)
        values = content.session_start_info.hparams
        said[name] = (values["model or matching"].string_value, values["kind"].string_value)
        experiment = run.summary_metadata["_hparams_/experiment"].plugin_data.content
        metrics = HParamsPluginData.FromString(experiment).experiment.metric_infos
        tags = [metric.name.tag for metric in metrics]
        assert tags == ["merge/accuracy/digits"]
        assert all(tag in run.Tags()["scalars"] for tag in tags)
    assert said == {
        "unmatched": ("unmatched", "merge"),
        "paper": ("paper", "merge"),
        "paper_attention_only": ("paper, attention only", "merge"),
        "end_model_one": ("one", "end model"),
        "end_model_runs_two": ("runs/two", "end model"),
    }
