"""docs/dependencies.md has a line for each package that pyproject.toml names, and for no other."""

import re
import tomllib

from tests.site.hooks import ROOT


def test_each_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base, extras = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").split("## Extras")
    names = [re.split(r"[\[<>=]", package)[0] for package in project["dependencies"]]
    assert sorted(re.findall(r"^\| `([^`]+)` \|", base, re.MULTILINE)) == sorted(names)
    told: dict[str, set[str]] = {}
    for extra, cell in re.findall(r"^\| `([^`]+)` \| (.*?) \|", extras, re.MULTILINE):
        told.setdefault(extra, set()).update(re.findall(r"`([^`]+)`", cell))
    for extra, packages in project["optional-dependencies"].items():
        assert told[extra] == {re.split(r"[\[<>=]", package)[0] for package in packages}, extra


def test_folders_that_are_named_import_what_they_are_said_to() -> None:
    """A file in the last column has the package's import."""
    imports = {"pillow": "PIL", "scikit-learn": "sklearn", "POT": "ot", "lapx": "lap", "pyyaml": "yaml"}
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").split("## Extras")[0]
    for package, places in re.findall(r"^\| `([^`]+)` \| .* \| (.*) \|$", text, re.MULTILINE):
        for place in re.findall(r"`([^`]+)`", places):
            path = ROOT / "fusionlab" / place
            files = [path] if path.is_file() else list(path.rglob("*.py"))
            wanted = re.compile(rf"^\s*(import|from) {imports.get(package, package)}\b", re.MULTILINE)
            assert any(wanted.search(file.read_text(encoding="utf-8")) for file in files), (package, place)
