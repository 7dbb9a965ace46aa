"""Imports run one way: no module reaches itself again through those it imports."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import fusionlab


def imported(names: dict[str, Path]) -> dict[str, set[str]]:
    """The modules of the package that each of them imports: at the top, in a function, or for its types alone."""
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} imports by a relative path"
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                # What is no module of its own is a name out of the one it is imported from.
                found[name] |= {one if one in names else str(node.module) for one in inside}
        found[name] &= set(names)
    return found


def test_no_module_imports_itself_through_others() -> None:
    root = Path(fusionlab.__file__).parent
    paths = sorted(root.rglob("*.py"))
    names = {".".join(("fusionlab", *path.relative_to(root).with_suffix("").parts)): path for path in paths}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    # The package's own module gives names of all floors away, when they are first used, and its version to them.
    del names["fusionlab"]
    graph = imported(names)
    assert graph["fusionlab.statistics.watching"] >= {"fusionlab.statistics.accumulator", "fusionlab.statistics.seen"}
    TopologicalSorter(graph).prepare()


def test_symmetry_imports_nothing_of_the_project() -> None:
    """The floor that everything stands on stands on nothing."""
    root = Path(fusionlab.__file__).parent
    paths = {f"fusionlab.{'.'.join(p.relative_to(root).with_suffix('').parts)}": p for p in root.rglob("*.py")}
    names = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    inside = {name for name in names if name.startswith("fusionlab.symmetry")}
    graph = imported(names)
    assert {name: graph[name] - inside for name in inside if graph[name] - inside} == {}
