"""What is demanded of a command, whatever its input."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.cases import OUTPUT, Case
from tests.robustness.client import Outcome, Server
from tests.robustness.generator import lay_out
from tests.robustness.watching import inventory

LONGEST_SENTENCE = 1000
CODES = (0, 2)
LOOKED_FOR = "no model of that name could be reached on the Hugging Face hub"
# The parser's reader of type stubs asks the interpreter that runs for its path: a fixed line, no shell.
ASKS_ITS_OWN_PATH = "'-c', 'import sys, json; print(json.dumps(sys.path))'], None, None)"


@dataclass(frozen=True)
class Tried:
    """A case that was run."""

    kind: str
    case: Case
    outcome: Outcome
    complaints: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.kind}: fusionlab {' '.join(self.case.argv)}"[:500], *self.complaints]
        ending = f"exit {self.outcome.code} after {self.outcome.seconds:.1f} s: {self.outcome.err[-1500:]}"
        return "\n  ".join([*lines, ending])


def try_case(server: Server, sound: Path, seed: int, index: int, folder: Path) -> Tried:
    """Lay out a case, run it, and hold what it did against all demands.

    Args:
        server: forks the command.
        sound: folder of undamaged inputs.
        seed: of the whole run.
        index: of the case.
        folder: to lay it out in; removed afterwards.
    """
    name, case, place = lay_out(seed, index, sound, folder)
    before = inventory(folder)
    home = {"HOME": str(folder / "home")}
    # An output is written under a hidden name beside it, and a part of it under one beside that.
    outputs = [OUTPUT, f"{OUTPUT}.*", f".{OUTPUT}*", f"..{OUTPUT}*", *case.may_write]
    outcome = server.run(
        case.argv, place.work, [place.work / name for name in outputs], environment=home, by_parts=index % 2 == 1
    )
    complaints = of_any(outcome, case.argv[0])
    after = inventory(folder)
    kept = {name: state for name, state in after.items() if not _may_be_written(name, case, outcome.code)}
    wanted = {name: state for name, state in before.items() if not _may_be_written(name, case, outcome.code)}
    for path in sorted(kept.keys() | wanted.keys()):
        if kept.get(path) != wanted.get(path):
            verb = "was left" if path not in wanted else "is gone" if path not in kept else "was changed"
            complaints.append(f"{path} {verb}")
    if place.canary.exists():
        complaints.append("code in a damaged file ran")
    if outcome.code == 0 and case.must_refuse:
        complaints.append("damage that is plain to see was accepted")
    elif outcome.code == 0 and case.judge is not None and (reason := case.judge(place.work)):
        complaints.append(f"accepted, although {reason}")
    shutil.rmtree(folder)
    return Tried(name, case, outcome, tuple(complaints))


def of_any(outcome: Outcome, command: str, codes: tuple[int, ...] = CODES) -> list[str]:
    """What is wrong with a command, whatever it read: how it ended, what it said, what it took, what it touched."""
    found = []
    if outcome.stopped:
        found.append(f"it took too much {outcome.stopped}: {outcome.seconds:.0f} s, {outcome.grown / 2**20:.0f} MiB")
    elif outcome.code not in codes:
        found.append(f"exit code {outcome.code}")
    if "Traceback" in outcome.err or "Traceback" in outcome.out:
        found.append("a traceback")
    if outcome.code == 2:
        lines = outcome.err.splitlines()
        if len(lines) != 1 or not lines[0].startswith(f"fusionlab {command}: error: "):
            found.append(f"{len(lines)} lines on standard error, not one sentence")
        elif len(lines[0]) > LONGEST_SENTENCE:
            found.append(f"a sentence of {len(lines[0])} characters")
        elif not lines[0].isprintable():
            found.append("a sentence with control characters")
    # What may be a name on the hub is looked for there.
    if LOOKED_FOR not in outcome.err:
        found += [f"network: {attempt}" for attempt in outcome.network]
    found += [f"started {program}" for program in outcome.programs if not program.endswith(ASKS_ITS_OWN_PATH)]
    found += [f"written outside: {path}" for path in outcome.outside]
    return found


def _may_be_written(name: str, case: Case, code: int) -> bool:
    """Whether a name in a case's folder is the output of a command that ended well (or that goes on in it)."""
    parts = Path(name).parts
    if len(parts) < 2 or parts[0] != "work":
        return False
    # The last is how a Lightning file is matched, beside its twin.
    if parts[1] in (OUTPUT, f"{OUTPUT}.ckpt", f"{OUTPUT}.alignment.safetensors"):
        return code == 0
    return any(
        parts[1] == place or (place.endswith("*") and parts[1].startswith(place[:-1])) for place in case.may_write
    )
