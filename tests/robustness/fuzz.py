"""Many damaged inputs with any seed: ``python -m tests.robustness.fuzz --seed 1 --cases 3000``."""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.robustness.client import Server
from tests.robustness.demands import try_case
from tests.robustness.generator import name_of


def main() -> int:
    """Try them; 1 if one of them was not met as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="Of everything random.")
    parser.add_argument("--cases", type=int, default=3000, help="How many.")
    parser.add_argument("--first", type=int, default=0, help="Index of the first, to repeat one.")
    parser.add_argument("--kind", help="Only cases of kinds whose name holds this.")
    parser.add_argument("--verbose", action="store_true", help="Say what became of each.")
    arguments = parser.parse_args()
    start, codes, failures = time.perf_counter(), Counter[int](), Counter[str]()
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "server")
        sound = make_sound(server, Path(folder))
        for index in range(arguments.first, arguments.first + arguments.cases):
            if arguments.kind and arguments.kind not in name_of(arguments.seed, index):
                continue
            tried = try_case(server, sound, arguments.seed, index, Path(folder) / "case")
            codes[tried.outcome.code] += 1
            slowest, largest = max(slowest, tried.outcome.seconds), max(largest, tried.outcome.grown)
            if tried.complaints or arguments.verbose:
                print(f"{index}: {tried}", flush=True)
            failures[tried.kind] += bool(tried.complaints)
        server.close()
    told = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items()))
    print(
        f"{codes.total()} damaged inputs, seed {arguments.seed}: {told}; {failures.total()} not as demanded; "
        f"slowest {slowest:.1f} s, most memory {largest / 2**20:.0f} MiB; {time.perf_counter() - start:.0f} s in all"
    )
    for name, count in failures.most_common():
        if count:
            print(f"  {name}: {count}")
    return int(failures.total() > 0)


def make_sound(server: Server, folder: Path) -> Path:
    """Make the undamaged inputs."""
    (folder / "making" / "sound").mkdir(parents=True)
    sound = folder / "making" / "sound"
    made = server.call("tests.robustness.sound:make", sound, [sound, sound.parent], seconds=300, folder=str(sound))
    if made.code:
        raise RuntimeError(f"the undamaged inputs could not be made: {made.err[-2000:]}")
    return sound


if __name__ == "__main__":
    sys.exit(main())
