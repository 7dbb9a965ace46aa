"""A line between two models as it is shown: short in a terminal, a picture in a notebook."""

import math
from xml.etree import ElementTree

from fusionlab.evaluation.curves import Curve


def curve(*loss: float) -> Curve:
    positions = tuple(index / (len(loss) - 1) for index in range(len(loss)))
    return Curve("b & c", "a", "none", "digits", "in", positions, loss, loss)


def test_short() -> None:
    assert repr(curve(1.0, 3.0, 2.0)) == (
        "Curve(a to b & c, unmatched, on digits: barrier 1.500, loss 1.000 and 2.000 at the ends, 3.000 half way)"
    )


def test_picture() -> None:
    """Points where they belong: positions to the right, losses upwards; words for who cannot see it."""
    figure = ElementTree.fromstring(curve(1.0, 3.0, 2.0)._repr_html_())
    (picture,) = figure.iter("svg")
    title = picture.find("title")
    assert title is not None
    assert title.text is not None
    assert "a to b & c" in title.text
    assert "barrier 1.500" in title.text
    places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in figure.iter("circle")]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    heights = [y for _, y in places]
    assert heights.index(max(heights)) == 0
    assert heights.index(min(heights)) == 1


def test_losses_that_are_no_numbers() -> None:
    """Left out; of none, and of ones that are all alike, there is a picture too."""
    for shown, dots in ((curve(1.0, math.nan, 2.0), 2), (curve(math.inf, math.nan), 0), (curve(1.0, 1.0), 2)):
        assert len(list(ElementTree.fromstring(shown._repr_html_()).iter("circle"))) == dots
