"""The script of docs/lightning.md, run as it stands."""

import re
import subprocess
import sys
from pathlib import Path

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
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{script}\n{CHECKS}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {"end_models", "logs", "merged"}
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert (tmp_path / "logs" / "fusion" / "checkpoints" / "last.ckpt").exists()
