"""Results that reports are about."""

from fusionlab.evaluation.results import Results, Row

ENDS = (0.957, 0.950)


def make(
    scores: dict[str, float], data_sets: dict[str, str] | None = None, names: tuple[str, str] = ("one", "two")
) -> Results:
    rows = []
    for data_set, domain in (data_sets or {"digits": "in"}).items():
        for name, value in zip(names, ENDS, strict=True):
            rows.append(Row((name,), "end model", "-", data_set, domain, "accuracy", value))  # type: ignore[arg-type]
        for matching, value in scores.items():
            rows.append(Row(names, "simple", matching, data_set, domain, "accuracy", value, 1.5))  # type: ignore[arg-type]
    return Results("A merge", names, rows)
