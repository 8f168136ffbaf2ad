"""A stand-in for a hub: the part of its HTTP API by which `huggingface_hub` creates, fills and reads a model."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """Every commit of every repository, newest last, each with all of its files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.commits: dict[str, list[Files]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repository: str, revision: str) -> tuple[str, Files]:
        """The name and the files of `main`, or of a commit by its name."""
        for number, files in enumerate(self.commits[repository]):
            name = hashlib.sha1(f"{repository} {number}".encode()).hexdigest()
            if revision == name or (revision == "main" and number == len(self.commits[repository]) - 1):
                return name, files
        raise KeyError(revision)


class _Requests(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        self.server.requests.append(f"{self.command} {self.path}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "Bearer secret" not in self.headers.get("Authorization", ""):
            return self._json({"error": "Invalid credentials"}, 401)
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts == ["api", "repos", "create"]:
            given = json.loads(body)
            name = f"{given.get('organization')}/{given['name']}"
            self.server.private.setdefault(name, given.get("private") or given.get("visibility") == "private")
            self.server.commits.setdefault(name, [{".gitattributes": b""}])
            return self._json({"url": f"{self.server.address}/{name}"})
        if parts == ["api", "validate-yaml"]:
            return self._json({"errors": [], "warnings": []})
        name = "/".join(parts[2:4])
        if parts[4] == "preupload":
            modes = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self._json({"files": modes})
        assert parts[4] == "commit", self.path
        files = dict(self.server.commits[name][-1])
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.server.commits[name].append(files)
        oid = self.server.commit(name, "main")[0]
        return self._json(
            {"commitUrl": f"{self.server.address}/{name}/commit/{oid}", "commitOid": oid, "success": True}
        )

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        api = parts[0] == "api"
        name, revision = "/".join(parts[2:4] if api else parts[:2]), "main"
        revision = parts[5] if api and len(parts) > 5 else parts[3] if not api else "main"
        try:
            oid, files = self.server.commit(name, revision)
        except KeyError:
            code = "RevisionNotFound" if name in self.server.commits else "RepoNotFound"
            return self._send(b"{}", {"X-Error-Code": code, "X-Error-Message": "not here"}, 404)
        if not api:
            content = files["/".join(parts[4:])]
            headers = {"X-Repo-Commit": oid, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            return self._send(content, headers)
        if parts[4:5] == ["tree"]:
            return self._json(
                [
                    {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for path, content in files.items()
                ]
            )
        return self._json({"_id": "1", "id": name, "sha": oid, "siblings": [{"rfilename": path} for path in files]})

    do_HEAD = do_GET

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json"}, status)

    def _send(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def small_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
