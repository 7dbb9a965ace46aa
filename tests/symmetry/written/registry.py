"""Where the descriptions of this folder are registered, and what they share."""

from importlib.metadata import version

from packaging.version import Version

from fusionlab.symmetry.architectures.descriptions import Descriptions, class_head

WRITTEN = Descriptions()
architecture = WRITTEN.of

__all__ = ["WRITTEN", "architecture", "class_head", "is_before"]


def is_before(package: str, release: str) -> bool:
    """The installed version of a package is an earlier one, of those that are supported."""
    return Version(version(package)) < Version(release)
