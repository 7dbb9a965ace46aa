"""Outputs are uploaded whole; what cannot be uploaded is refused in one sentence before any work."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from fusionlab.checkpoints.publishing import push, refuse_push
from fusionlab.errors import InputError
from tests.checkpoints.hub_stand_in import Hub, asked


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in that the library asks, with a token that it knows."""
    yield from asked(monkeypatch)


def folder(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_a_folder_is_a_repository(hub: Hub, tmp_path: Path) -> None:
    """All files are there, and those of an older upload are not any more."""
    refuse_push("me/merged")
    assert hub.changes == []
    made = folder(tmp_path / "one", config="{}", weights="old")
    (made / "2_Dense").mkdir()
    (made / "2_Dense" / "weights").write_text("small")
    assert push(made, "me/merged") == f"{hub.address}/me/merged"
    assert hub.files["me/merged"] == {"config": b"{}", "weights": b"old", "2_Dense/weights": b"small"}
    with pytest.raises(InputError, match="me/merged exists on the hub already; choose another name"):
        refuse_push("me/merged")
    refuse_push("me/merged", overwrite=True)
    push(folder(tmp_path / "two", config="{1}", shard="new"), "me/merged")
    assert hub.files["me/merged"] == {"config": b"{1}", "shard": b"new"}


def test_what_is_left_out(hub: Hub, tmp_path: Path) -> None:
    """A repository that is made is private; files of some names stay here, and are no longer there."""
    made = folder(tmp_path / "one", config="{}", notes="of this machine")
    push(made, "me/merged")
    assert hub.private == {"me/merged": True}
    push(made, "me/merged", ["notes"])
    assert hub.files["me/merged"] == {"config": b"{}"}
    hub.refused = 403
    with pytest.raises(InputError, match=r"hf upload --private me/merged .*one --exclude notes"):
        push(made, "me/merged", ["notes"])


def test_what_is_refused_before_any_work(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is none; a token that the hub does not know, or none; a hub out of reach, or kept away."""
    for name in ("merged", "a/b/c", "../x", "me/ "):
        with pytest.raises(InputError, match="expected a repository of the hub, such as name/model"):
            refuse_push(name)
    monkeypatch.setenv("HF_TOKEN", "hf_unknown")
    with pytest.raises(InputError, match="me/x cannot be pushed to: the hub does not know the token; log in again"):
        refuse_push("me/x")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"the hub cannot be reached \(ConnectError\); check the network"):
        refuse_push("me/x")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="there is no token; log in"):
        refuse_push("me/x")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="but HF_HUB_OFFLINE is set; unset it"):
        refuse_push("me/x")
    assert hub.changes == []


def test_a_refused_upload_leaves_the_output(hub: Hub, tmp_path: Path) -> None:
    """The sentence says where it is, why it was not uploaded, and how to do it again."""
    hub.refused = 403
    made = folder(tmp_path / "one", config="{}")
    with pytest.raises(InputError, match="is complete, but was not uploaded to me/x: the token may not write") as told:
        push(made, "me/x")
    assert f"hf upload --private me/x {made}" in str(told.value)
    assert (made / "config").is_file()
