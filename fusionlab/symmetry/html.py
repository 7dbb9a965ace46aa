"""Small tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in HTML, all of its text escaped.

    Args:
        caption: what it shows.
        heads: of the columns.
        rows: as many cells each.
    """
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    words = escape(caption)
    return f"<table><caption>{words}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
