"""What cannot be written is told before any work."""

import os
import sys
from pathlib import Path

import pytest

from fusionlab.atomic import refuse_existing, require_space, try_to_write
from fusionlab.errors import InputError


def test_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with overwrite."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for target in (".", "..", str(tmp_path)):
        with pytest.raises(InputError, match="working folder"):
            refuse_existing(target, overwrite=True)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("target", ["/proc/x", "/proc/deep/er/x", "/sys/x"])
def test_where_nothing_can_be_written(target: str) -> None:
    """Permissions say that root may write there; only trying tells."""
    with pytest.raises(InputError, match=r"nothing can be written into .*; expected a folder"):
        refuse_existing(target)


def test_trying_leaves_nothing(tmp_path: Path) -> None:
    """Neither what was tried nor the folders on the way to it."""
    try_to_write(tmp_path / "a" / "b" / "out")
    assert not list(tmp_path.iterdir())


def test_a_link_to_nowhere_or_to_itself_is_no_folder(tmp_path: Path) -> None:
    """One sentence for each."""
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("nowhere", "circle"):
        with pytest.raises(InputError, match="nothing can be written into"):
            refuse_existing(tmp_path / name / "out")


def test_a_mounted_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the work, as no rename can replace it after."""
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "out")
    with pytest.raises(InputError, match="mounted file system"):
        refuse_existing(tmp_path / "out", overwrite=True)


def test_another_users_output_in_a_shared_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder like ``/tmp`` only the owner may."""
    (tmp_path / "out").mkdir()
    tmp_path.chmod(0o1777)
    refuse_existing(tmp_path / "out", overwrite=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    tmp_path.chmod(0o777)
    refuse_existing(tmp_path / "out", overwrite=True)
    tmp_path.chmod(0o1777)
    with pytest.raises(InputError, match="another user"):
        refuse_existing(tmp_path / "out", overwrite=True)
    tmp_path.chmod(0o755)


def test_space_is_told_in_mib(tmp_path: Path) -> None:
    """What is needed and what there is, also for an output whose folders are not there yet."""
    require_space(tmp_path / "a" / "out", 1)
    with pytest.raises(
        InputError, match=r"out: about 1,099,511,627,776 MiB will be written, but .* has [\d,]+ MiB left"
    ):
        require_space(tmp_path / "a" / "out", 2**60)
    with pytest.raises(InputError, match="written, 3 MiB of them numbers on the way that are removed again, but"):
        require_space(tmp_path / "a" / "out", 2**60, 3 * 2**20)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_file_system_without_a_size_has_space(tmp_path: Path) -> None:
    """It says nothing about what fits."""
    require_space("/proc/x", 2**60)
