"""A stand-in of the hub's API on this machine: who asks, repositories, commits."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import huggingface_hub
import pytest

TOKEN = "hf_stand_in"
_COMMIT = "0" * 40


class Hub:
    """What was asked of the stand-in.

    Attributes:
        files: of each repository, the content by path.
        requests: method and path of each request.
        private: of each repository that was made, whether it is.
        refused: the status that commits are answered with, if not done.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[str] = []
        self.refused: int | None = None

    @property
    def changes(self) -> list[str]:
        """The requests that change something."""
        return [request for request in self.requests if "/create" in request or "/commit/" in request]


def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve it to the library, with a token that it knows."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with stand_in() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        yield found


@contextmanager
def stand_in() -> Iterator[Hub]:
    """Serve it while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self._asked()
            repository, resolved, rest = asked.strip("/").partition("/resolve/")
            if not resolved:
                self._answer(*_read(hub, asked))
            elif (content := hub.files.get(repository, {}).get(rest.partition("/")[2])) is None:
                self._answer(404, {"error": "Entry not found"})
            else:
                self._send(content)

        do_HEAD = do_GET  # noqa: N815

        def _send(self, content: bytes) -> None:
            """A file; of a HEAD request what describes it."""
            self.send_response(200)
            self.send_header("X-Repo-Commit", _COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_POST(self) -> None:
            asked = self._asked()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(*_write(hub, asked, body))

        def _asked(self) -> str:
            hub.requests.append(f"{self.command} {self.path}")
            return self.path.partition("?")[0] if self.headers.get("Authorization") == f"Bearer {TOKEN}" else "unknown"

        def _answer(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing on the standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read(hub: Hub, path: str) -> tuple[int, Any]:
    if path == "unknown":
        return 401, {"error": "Invalid username or password."}
    if path == "/api/whoami-v2":
        return 200, {"name": "me", "type": "user"}
    repository = "/".join(path.removeprefix("/api/models/").split("/")[:2])
    if repository not in hub.files:
        return 404, {"error": "Repository not found"}
    entries = [{"type": "file", "oid": "0", "size": len(c), "path": p} for p, c in hub.files[repository].items()]
    if "/tree/" in path:
        return 200, entries
    siblings = [{"rfilename": entry["path"]} for entry in entries]
    return 200, {"id": repository, "sha": _COMMIT, "siblings": siblings, "tags": [], "private": False}


def _write(hub: Hub, path: str, body: bytes) -> tuple[int, Any]:
    if path == "unknown":
        return 401, {"error": "Invalid username or password."}
    if path == "/api/repos/create":
        asked = json.loads(body)
        repository = f"{asked.get('organization') or 'me'}/{asked['name']}"
        hub.files.setdefault(repository, {})
        hub.private[repository] = asked.get("private") is True or asked.get("visibility") == "private"
        return 200, {"url": f"{hub.address}/{repository}"}
    if path == "/api/validate-yaml":
        return 200, {"errors": [], "warnings": []}
    repository = "/".join(path.removeprefix("/api/models/").split("/")[:2])
    if "/preupload/" in path:
        files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
        return 200, {"files": [{**file, "shouldIgnore": False} for file in files]}
    if hub.refused is not None:
        return hub.refused, {"error": "You don't have the rights"}
    for line in body.splitlines():
        entry = json.loads(line)
        if entry["key"] == "file":
            hub.files[repository][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        elif entry["key"] == "deletedFile":
            hub.files[repository].pop(entry["value"]["path"])
    return 200, {"commitUrl": f"{hub.address}/{repository}/commit/1", "commitOid": "1" * 40, "success": True}
