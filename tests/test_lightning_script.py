"""The script of docs/lightning.md, run as it stands."""

import os
import re
from pathlib import Path

from tests.forked import Child

ROOT = Path(__file__).parents[1]
CHECKS = """
assert merge.method == "simple" and merge.matching == "learned"
scores = {(row.method, row.matching): row.value for row in results.rows if row.metric == "accuracy"}
ends = [row.value for row in results.rows if row.metric == "accuracy" and row.method == "end model"]
assert min(ends) > 0.85, ends
assert scores["simple", "none"] < min(ends) - 0.2, scores
assert scores["simple", "learned"] > scores["simple", "none"] + 0.2, scores
assert {row.method for row in results.rows} == {"end model", "simple", "regmean"}
assert any(one.matching == "learned" for one in results.distances)
"""


def test_the_script_runs_as_it_stands(tmp_path: Path) -> None:
    """Two end models are fitted, fused and tested; learned matching is what makes the mean of use."""
    (script,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "lightning.md").read_text(), re.M | re.S)

    def program() -> int:
        os.chdir(tmp_path)
        exec(compile(f"{script}\n{CHECKS}", "docs/lightning.md", "exec"), {"__name__": "__main__"})
        return 0

    done = Child(program, seconds=600).end()
    assert done.code == 0, done.err[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {"end_models", "logs", "merged"}
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert (tmp_path / "logs" / "fusion" / "checkpoints" / "last.ckpt").exists()
