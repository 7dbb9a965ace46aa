"""The list of equivalent mutants belongs to the source as it is."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_entry_is_about_lines_that_exist_and_gives_a_reason() -> None:
    """Needs nothing of what makes the mutants."""
    entries = tomllib.loads((ROOT / "tests" / "mutation" / "equivalent.toml").read_text()).get("mutant", [])
    for entry in entries:
        lines = {line.strip() for line in (ROOT / entry["file"]).read_text().splitlines()}
        missing = [line for line in entry["was"].splitlines() if line not in lines]
        assert not missing, f"{entry['file']} has no line {missing[0]!r}: remove or renew its entry"
        assert entry["was"] != entry["now"]
        assert len(entry["reason"].split()) >= 5, f"{entry['file']}: {entry['was']!r} needs a reason"
