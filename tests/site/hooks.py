"""Pages of the site that lie outside ``docs/``, and the links to and from them: hooks that MkDocs calls.

A link in a Markdown file is written as the repository has it, so that it works there too. On the site a link to a page
leads to that page, and one to any other file of the repository is its text alone.
"""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples/README.md",
}
EXAMPLES = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in sorted(ROOT.glob("examples/*.py"))}
# A link or a picture: its text, its target without a title, and the part of the page.
LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """The files of the site, with the pages from elsewhere."""
    from mkdocs.structure.files import File  # noqa: PLC0415

    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for source, page in EXAMPLES.items():
        files.append(File.generated(config, page, content=example(ROOT / source)))
    return files


def example(path: Path) -> str:
    """A script with marked cells as a page, and the picture that it draws."""
    import jupytext  # noqa: PLC0415

    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all"}}
    text = jupytext.writes(notebook, fmt="md")
    return f"{text}\n![The picture that it draws](../images/{path.parent.name}/{path.stem}.png)\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page with the links that the site has."""
    return with_links(markdown, page.file.src_uri)


def with_links(markdown: str, page: str) -> str:
    """The text with every link as the site has it.

    Args:
        markdown: as it is in the repository.
        page: where it is on the site, such as ``results/text.md``.
    """
    sources = {there: source for source, there in (PAGES | EXAMPLES).items()}
    folder = (ROOT / sources.get(page, f"docs/{page}")).parent

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        path = Path(os.path.normpath(folder / target))
        if not target or ":" in target or not path.is_relative_to(ROOT) or not path.exists():
            return found[0]
        name = path.relative_to(ROOT).as_posix()
        name = f"{name}/README.md" if (path / "README.md").exists() else name
        there = (PAGES | EXAMPLES).get(name, name.removeprefix("docs/"))
        if there == name and name not in PAGES:
            return found["text"][1:-1]
        return f"{found['text']}({os.path.relpath(there, Path(page).parent)}{found['anchor'] or ''})"

    return LINK.sub(link, markdown)
