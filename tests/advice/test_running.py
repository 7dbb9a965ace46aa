"""Commands that advice prints: `fuse` takes each as it stands."""

from contextlib import nullcontext

import pytest

from fusionlab.advice.running import commands
from fusionlab.advice.situations import CASES
from fusionlab.advice.tensors import Weights


@pytest.mark.parametrize("match", ["learned", "correlation", "weights"])
@pytest.mark.parametrize("source", ["{}", None])
def test_heads_of_their_own_are_matched_without_inputs(match: str, source: str | None) -> None:
    """`fuse` refuses what looks at inputs of all models there, a correction too."""
    models = [Weights(name, None if source is None else name, {}, {}, nullcontext) for name in "ab"]
    lines = commands("other_seeds", CASES["other_seeds"], models, match, "DATA", True)
    assert lines
    for line in lines:
        assert "learned" not in line
        assert "correlation" not in line
        assert "--correct" not in line
        assert "weights" in line
