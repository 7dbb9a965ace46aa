"""Writes the table of docs/advise.md: ``python -m tests.advice.table``."""

import fusionlab
from tests.advice.test_advice import PAIRS

SHOWN = (
    "other seeds", "other seeds, narrow", "fresh, never trained", "short fine-tunes", "long fine-tunes",
    "one model in another order", "a merge and its end model", "noise", "much noise", "scaled",
)  # fmt: skip


def main() -> None:
    """Print a line for each pair: mean over the kinds of parameters that tell, angle of all matrices, case."""
    print("| pair | own nearest, % | by chance, % | angle, degrees | case |\n|---|---:|---:|---:|---|")
    for name in SHOWN:
        _, one, other = PAIRS[name]
        advice = fusionlab.advise(one(), other())
        (pair,) = advice.pairs
        own = [kind.nearest for kind in pair.kinds if kind.nearest is not None]
        chance = [kind.chance for kind in pair.kinds if kind.chance is not None]
        numbers = f"{100 * sum(own) / len(own):.1f} | {100 * sum(chance) / len(chance):.1f}"
        print(f"| {name} | {numbers} | {pair.matrices.angle:.1f} | {advice.case.replace('_', ' ')} |")


if __name__ == "__main__":
    main()
