"""The house: imports run one way, private names stay in their files, and tests lie where what they test lies."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fusionlab

PACKAGE, TESTS = Path(fusionlab.__file__).parent, Path(__file__).parent
BENCHMARKS = TESTS.parent / "benchmarks"
# Folders of tests that are about no folder of the package: architectures against one harness, benchmarks, pages, and
# tools.
OWN_FOLDERS = {"benchmarks", "families", "first_hour", "mutation", "robustness", "site"}


def modules_in(root: Path, name: str) -> dict[str, Path]:
    """The files of a package by the names of their modules."""
    found = {
        ".".join((name, *path.relative_to(root).with_suffix("").parts)): path for path in sorted(root.rglob("*.py"))
    }
    return {module.removesuffix(".__init__"): path for module, path in found.items()}


MODULES = modules_in(PACKAGE, "fusionlab")


def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(names: dict[str, Path]) -> dict[str, set[str]]:
    """The modules of the package that each of them imports: at the top, in a function, or for its types alone."""
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        found[name] = set()
        for node in ast.walk(read(path)):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} imports by a relative path"
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                # What is no module of its own is a name out of the one it is imported from.
                found[name] |= {one if one in names else str(node.module) for one in inside}
        found[name] &= set(names)
    return found


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private names of the project's modules that a file takes: imported, or as attributes of an imported module."""
    projects = {"fusionlab", "tests", "benchmarks"}
    taken: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            taken |= {alias.asname or alias.name for alias in node.names if alias.name.split(".")[0] in projects}
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in projects:
            names = {alias.name: alias.asname or alias.name for alias in node.names}
            yield from (f"{node.module}.{name}" for name in names if is_private(name))
            # An imported class has private parts too.
            taken |= set(names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) in taken:
            yield ast.unparse(node)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_module_imports_itself_through_others() -> None:
    # The package's own module gives names of all floors away, when they are first used, and its version to them.
    graph = imported({name: path for name, path in MODULES.items() if name != "fusionlab"})
    assert graph["fusionlab.statistics.watching"] >= {"fusionlab.statistics.accumulator", "fusionlab.statistics.seen"}
    TopologicalSorter(graph).prepare()


def test_no_folder_imports_itself_through_others() -> None:
    """Folders, and the files beside them, are floors: whatever one stands on does not stand on it."""
    graph: dict[str, set[str]] = {}
    for name, others in imported({name: path for name, path in MODULES.items() if name != "fusionlab"}).items():
        floor = name.split(".")[1]
        graph.setdefault(floor, set()).update({other.split(".")[1] for other in others} - {floor})
    assert {"matching", "merging", "evaluation"} <= graph["fusion"]
    TopologicalSorter(graph).prepare()


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    """Also one that only types or a function need."""
    (tmp_path / "one.py").write_text("from fusionlab import two\n")
    (tmp_path / "two.py").write_text("def late():\n    from fusionlab.one import name\n")
    graph = imported({f"fusionlab.{name}": tmp_path / f"{name}.py" for name in ("one", "two")})
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_symmetry_imports_nothing_of_the_project() -> None:
    """The floor that everything stands on stands on nothing."""
    inside = {name for name in MODULES if name.startswith("fusionlab.symmetry")}
    graph = imported(MODULES)
    assert {name: graph[name] - inside for name in inside if graph[name] - inside} == {}


@pytest.mark.parametrize("root", [PACKAGE, TESTS, BENCHMARKS], ids=lambda root: root.name)
def test_private_names_stay_in_their_files(root: Path) -> None:
    """What another file needs has a public name, tests included."""
    files = sorted(root.rglob("*.py"))
    assert files
    found = {str(path.relative_to(root)): names for path in files if (names := sorted(private_names(read(path))))}
    assert found == {}


def test_a_private_name_would_be_found() -> None:
    text = "from fusionlab.merging import registry\nfrom fusionlab.paths import _here\nregistry._all, own._part\n"
    assert sorted(private_names(ast.parse(text))) == ["fusionlab.paths._here", "registry._all"]


def misplaced(tests: set[str], modules: set[str]) -> dict[str, str]:
    """Tests that lie in no folder of the package's names, or not beside the module whose name they have.

    Args:
        tests: paths of test files under ``tests``.
        modules: paths of modules under the package.

    Returns:
        By path, what is wrong.
    """
    places: dict[str, set[str]] = {}
    for module in map(Path, modules):
        places.setdefault(module.stem, set()).add(module.parent.as_posix())
    folders = {folder.as_posix() for module in map(Path, modules) for folder in module.parents}
    wrong = {}
    for test in map(Path, tests):
        place, name = test.parent.as_posix(), test.stem.removeprefix("test_")
        if place not in folders | OWN_FOLDERS:
            wrong[test.as_posix()] = "no such folder in the package"
        elif name in places and place not in places[name]:
            wrong[test.as_posix()] = f"{name}.py is in {', '.join(sorted(places[name]))}"
    return wrong


def test_tests_lie_where_what_they_test_lies() -> None:
    tests = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    modules = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    assert misplaced(tests, modules) == {}


def test_a_misplaced_test_would_be_found() -> None:
    modules = {"models.py", "merging/simple.py", "merging/ot.py"}
    tests = {"test_models.py", "test_simple.py", "merging/test_ot.py", "attic/test_any.py", "merging/test_all.py"}
    assert misplaced(tests, modules) == {
        "test_simple.py": "simple.py is in merging",
        "attic/test_any.py": "no such folder in the package",
    }


# What takes half a second or more to import, and who may import it before it is used.
SLOW: dict[str, set[str]] = {"ot": set(), "peft": set(), "sklearn": set(), "timm": {"fusionlab.tasks.image_models"}}


def imports_at_once(name: str) -> set[str]:
    """Everything that a module imports before anything in it is called, and the packages that it is in."""
    found: set[str] = set()
    for node in read(MODULES[name]).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found | {".".join(one.split(".")[:depth]) for one in found for depth in range(1, one.count(".") + 1)}


def test_what_is_slow_is_imported_where_it_is_used() -> None:
    """A fusion of two models of transformers has no use for any of them."""
    at_once = {name: imports_at_once(name) for name in MODULES}
    assert "scipy" in at_once["fusionlab.matching.assignment"]
    for package, allowed in SLOW.items():
        assert {name for name in MODULES if package in at_once[name]} == allowed, package


def test_fusing_imports_nothing_that_trains() -> None:
    """From models and options; a config of Lightning's shape may."""
    reached: set[str] = set()
    ahead = ["fusionlab.commands.fuse"]
    while ahead:
        if (name := ahead.pop()) not in reached:
            reached.add(name)
            ahead += imports_at_once(name) & set(MODULES)
    assert "fusionlab.experiment" in reached
    assert not {name for name in reached if name.startswith("fusionlab.tasks")}


# Files that hold one idea and need more lines for it.
LONG: set[str] = {"fusionlab/symmetry/infer/small_sizes.py"}


def test_files_are_short() -> None:
    """More than 300 lines are two ideas, until somebody says why not."""
    paths = [path for root in (PACKAGE, TESTS) for path in root.rglob("*.py")]
    lines = {path.relative_to(TESTS.parent).as_posix(): len(path.read_bytes().splitlines()) for path in paths}
    assert {name: count for name, count in lines.items() if count > 300 and name not in LONG} == {}
