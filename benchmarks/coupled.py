"""Memory of a matching of the residual stream where models lie, beside the same in memory, as layers grow.

``python benchmarks/coupled.py --layers 8`` makes pairs of Llamas of random bfloat16 weights, 512 wide, in a temporary
folder, and matches each in two child processes: as large models are matched, and as small ones are.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from streaming import child, make

# Runs the command with another size from which models count as large.
MATCH = """
import sys
from fusionlab.commands import match_stream
match_stream.IN_MEMORY = int(sys.argv[1])
from fusionlab.cli import main
sys.exit(main(sys.argv[2:]))
"""
OPTIONS = ["--match", "weights", "--start", "known", "--sweeps", "1"]


def main() -> None:
    """Make models, match them both ways, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--folder", type=Path, help="Where models are made, for the time of the run.")
    arguments = parser.parse_args()
    print("| layers | models | | seconds of a processor | anonymous memory, MiB | resident, MiB | load |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for layers in arguments.layers:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
            models = [Path(place) / str(seed) for seed in range(2)]
            for seed, model in enumerate(models):
                make(model, (layers, 512, 1408, 8, 4, 4000), seed)
            mib = sum(file.stat().st_size for file in models[0].iterdir()) / 2**20
            out = Path(place) / "out"
            for name, least in (("where they lie", 0), ("in memory", 2**60)):
                line = [sys.executable, "-c", MATCH, str(least), "match", str(models[0]), "--anchor", str(models[1])]
                load = os.getloadavg()[0]
                run = child([*line, *OPTIONS, "--output", str(out)])
                shutil.rmtree(out)
                memory = f"{run.anonymous:,.0f} | {run.resident:,.0f}"
                print(
                    f"| {layers} | {mib:.0f} MiB | {name} | {run.processor:.1f} | {memory} | {load:.0f} |", flush=True
                )


if __name__ == "__main__":
    main()
