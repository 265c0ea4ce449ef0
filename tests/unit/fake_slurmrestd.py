"""A slurmrestd on a real socket: answers in the published form of its versions, and every way in which one goes wrong.

Owns nodes and who may change them, as far as the published interface (tests/data/slurmrestd) tells. Each answer and
each body that came in is held to that. Must not know ibmon.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, final

import jsonschema

DATA = Path(__file__).parents[1] / "data" / "slurmrestd"
PUBLISHED = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("v*.json"))}
VERSIONS = tuple(PUBLISHED)
AT = 1893492000


class Fault(NamedTuple):
    """What happens to the next request: status, body, hang, drip, cut (half an answer), close (none), huge."""

    what: str
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    path: str = ""


def holds(version: str, name: str, document: Any) -> None:
    """Raise unless the document has the published form."""
    published = PUBLISHED[version]
    jsonschema.validate(document, {"$ref": f"#/$defs/{name}", "$defs": published["$defs"]})


@final
class FakeSlurmrestd:
    """The server; a context manager.

    Args:
        versions: what it offers; others than the published ones are offered by name only, as an older one does.
        tls: an SSLContext of a server.
        unix: where to listen instead of at a port.

    Attributes:
        token, user: who may do everything; None lets everybody.
        log: (method, path, headers, body) of every request.
        broken: what in requests had not the published form.
    """

    def __init__(self, versions: tuple[str, ...] = VERSIONS, *, tls: Any = None, unix: Path | None = None) -> None:
        self.versions = versions
        self.token: str | None = None
        self.user: str | None = None
        self.forbidden = False
        self.nodes: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, str, dict[str, str], Any]] = []
        self.broken: list[str] = []
        self.faults: list[Fault] = []
        self._closed = threading.Event()
        if unix:
            self._server: socketserver.BaseServer = _UnixServer(str(unix), _handler(self))
            self.url = f"unix:{unix}"
        else:
            self._server = server = _Server(("127.0.0.1", 0), _handler(self))
            if tls:
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            self.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FakeSlurmrestd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---------------------------------------------------------------------------------------- what a test arranges

    def add(
        self, name: str, *state: str, partitions: tuple[str, ...] = ("all",), hostname: str = "", **more: Any
    ) -> None:
        """A node, by default an idle one."""
        node = {"name": name, "hostname": hostname or name, "state": list(state or ("IDLE",))}
        self.nodes[name] = {**node, "partitions": list(partitions), "reason": "", "at": 0, "by": "", **more}

    def fail(self, what: str, **how: Any) -> None:
        """The next request goes wrong."""
        self.faults.append(Fault(what, **how))

    def calls(self, method: str = "") -> list[str]:
        """Paths of the requests with this method."""
        return [path for made, path, _, _ in self.log if not method or made == method]

    def bodies(self) -> list[Any]:
        """What was asked to be changed."""
        return [body for method, _, _, body in self.log if method == "POST"]

    # ------------------------------------------------------------------------------------------------- answering

    def take_fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.path in path:
                self.faults.remove(fault)
                return fault
        return None

    def wait(self, seconds: float) -> bool:
        return self._closed.wait(seconds)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        data = json.loads(body) if body else None
        self.log.append((method, path, headers, data))
        seen = headers.get("X-SLURM-USER-TOKEN"), headers.get("X-SLURM-USER-NAME")
        if (self.token or self.user) and seen != (self.token, self.user):
            return 401, b"Authentication failure"
        if path == "/openapi/v3":
            return 200, json.dumps({"openapi": "3.0.3", "paths": self._paths()}).encode()
        _, product, version, *rest = path.split("/")
        if product != "slurm" or version not in self.versions or version not in PUBLISHED:
            return 404, b"Unable find requested URL."
        return self._route(version, method, [part for part in rest if part], data)

    def _paths(self) -> dict[str, Any]:
        known = [path for version in self.versions for path in PUBLISHED.get(version, {"paths": ()})["paths"]]
        older = [f"/slurm/{version}/node/{{node_name}}" for version in self.versions if version not in PUBLISHED]
        return {path: {"get": {}} for path in ["/slurmdb/v0.0.42/diag/", "/openapi/v3", *older, *known]}

    def _route(self, version: str, method: str, rest: list[str], data: Any) -> tuple[int, bytes]:
        if rest == ["nodes"] and method == "GET":
            return self._tell(version, "nodes", [self._node(version, node) for node in self.nodes.values()])
        if len(rest) != 2 or rest[0] != "node" or method not in {"GET", "POST"}:
            return 404, b"Unable find requested URL."
        found = self.nodes.get(rest[1])
        if method == "GET":
            if found is None:
                return self._tell(
                    version, "nodes", [], f"Failure to query node {rest[1]}", "Invalid node name specified"
                )
            return self._tell(version, "nodes", [self._node(version, found)])
        try:
            holds(version, "update", data)
        except jsonschema.ValidationError as error:
            self.broken.append(error.message)
        if found is None:
            return self._tell(version, "status", [], f"Failure to update node {rest[1]}", "Invalid node name specified")
        if self.forbidden:
            return self._tell(version, "status", [], f"Failure to update node {rest[1]}", "Invalid user id")
        self._change(found, data)
        return self._tell(version, "status", [])

    def _change(self, node: dict[str, Any], data: Any) -> None:
        if data.get("state") == ["DRAIN"]:
            node["state"] = [*(word for word in node["state"] if word != "DRAIN"), "DRAIN"]
            node.update(reason=data["reason"], by=self.user or "root", at=AT)
        elif data.get("state") == ["UNDRAIN"]:
            node["state"] = [word for word in node["state"] if word != "DRAIN"]
            node.update(reason="", by="", at=0)

    def _node(self, version: str, node: dict[str, Any]) -> dict[str, Any]:
        shown = {key: node[key] for key in ("name", "hostname", "state", "partitions", "reason")}
        at = {"set": bool(node["at"]), "infinite": False, "number": node["at"]}
        number = PUBLISHED[version]["$defs"]["nodes"]["properties"]["nodes"]["items"]["properties"]["reason_changed_at"]
        plain = number == {"type": "integer"}
        return {**shown, "reason_set_by_user": node["by"], "reason_changed_at": node["at"] if plain else at}

    def _tell(
        self, version: str, name: str, nodes: list[Any], description: str = "", error: str = ""
    ) -> tuple[int, bytes]:
        errors = (
            [{"description": description, "error_number": 2009, "error": error, "source": "_dump_nodes"}]
            if error
            else []
        )
        document: dict[str, Any] = {"errors": errors, "warnings": []}
        if name == "nodes":
            document["nodes"] = nodes
            if "last_update" in PUBLISHED[version]["$defs"]["nodes"]["properties"]:
                document["last_update"] = {"set": True, "infinite": False, "number": AT}
        holds(version, name, document)
        return (500 if error else 200), json.dumps(document).encode()


def _handler(fake: FakeSlurmrestd) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def log_message(self, *_: object) -> None: ...

        def address_string(self) -> str:
            return "client"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.close_connection = True
            with contextlib.suppress(OSError):
                fault = fake.take_fault(self.path)
                if fault is None:
                    self._send(*fake.answer(self.command, self.path, dict(self.headers), body))
                else:
                    fake.log.append((self.command, self.path, dict(self.headers), json.loads(body or b"null")))
                    self._fail(fault)

        def _send(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
            self.send_response(status)
            for name, value in (("Content-Length", str(len(body))), ("Connection", "Close"), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _fail(self, fault: Fault) -> None:
            if fault.what == "status":
                self._send(fault.status, fault.body, fault.headers)
            elif fault.what == "hang":
                fake.wait(10)
            elif fault.what == "drip":
                self.send_response(200)
                while not fake.wait(0.05):
                    self.send_header("X-More", "x")
                    self.flush_headers()
            elif fault.what == "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            elif fault.what == "huge":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b" " * 10_000_000)

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None: ...  # a client that ends a handshake is what some tests are about


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
