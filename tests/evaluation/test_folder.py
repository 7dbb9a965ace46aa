"""One folder shows a run in every form, and the forms agree."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fusionlab.evaluation.folder import write
from fusionlab.evaluation.results import UNMATCHED
from tests.evaluation.reported import make


def test_tensorboard_shows_the_pictures_of_the_report(tmp_path: Path) -> None:
    """To the byte, with the size that they are shown in: nothing is drawn twice."""
    write(make({UNMATCHED: 0.2, "paper": 0.3}), tmp_path)
    pictures = {path.read_bytes() for path in (tmp_path / "plots").iterdir()}
    assert pictures
    summary = EventAccumulator(str(tmp_path / "tensorboard" / "summary"))
    summary.Reload()
    shown = [image for tag in summary.Tags()["images"] for image in summary.Images(tag)]
    assert {image.encoded_image_string for image in shown} == pictures
    for image in shown:
        # Where the size stands in a PNG file.
        sides = image.encoded_image_string[16:20], image.encoded_image_string[20:24]
        assert [int.from_bytes(side) for side in sides] == [image.width, image.height]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "results.csv").exists()
