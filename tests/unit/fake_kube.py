"""A small API server on the loopback: nodes, events, rights, and every way in which the real one goes wrong.

Owns what the calls of ibmon meet, as a real server was seen to answer; `kube_contract.py` runs against both, so that
this one cannot drift. Must not know ibmon.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, final
from urllib.parse import parse_qs, urlsplit

from fake_kube_objects import Asked, Objects, RefusedError

STRATEGIC = "application/strategic-merge-patch+json"
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_EFFECTS = {"NoSchedule", "PreferNoSchedule", "NoExecute"}


class Right(NamedTuple):
    """What a role allows; `resource` with its subresource and group, None for every namespace and every name."""

    verb: str
    resource: str
    namespace: str | None = None
    name: str | None = None


class Fault(NamedTuple):
    """What happens to the next matching request. `carried` are those that are carried out all the same.

    hang: no answer; cut: half an answer; lost: carried out, then the connection ends; drip: a header every 0.05 s.
    """

    what: str  # status, hang, cut, lost, drip, garbage, huge
    method: str = ""
    path: str = ""
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b'{"kind":"Status","message":"boom"}'


@final
class FakeKube:
    """The server; a context manager.

    Attributes:
        admin: a token that may do everything.
        log: (method, path with query) of every request, those that failed included.
        before: called with method and path before a request is carried out; to change things in between.
    """

    def __init__(self, tls: Any = None) -> None:
        self.admin = f"admin-{secrets.token_hex(8)}"
        self.nodes: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.objects = Objects()
        self.log: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self._rights: dict[str, frozenset[Right]] = {}
        self._faults: list[Fault] = []
        self._version = 100
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self), tls)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self.ca: str | None = None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FakeKube:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---------------------------------------------------------------------------------------- what a test arranges

    def token(self, *rights: Right) -> str:
        """A new token that may do this and nothing else."""
        token = f"token-{secrets.token_hex(8)}"
        self._rights[token] = frozenset(rights)
        return token

    def revoke(self, token: str) -> None:
        """The token is not known any more, as after its end."""
        del self._rights[token]

    def fail(self, what: str, *, times: int = 1, **how: Any) -> None:
        """The next requests that match `method` and the part `path` go wrong."""
        self._faults.extend([Fault(what, **how)] * times)

    def add(self, name: str, *, ready: str | None = "True", labels: dict[str, str] | None = None, **spec: Any) -> None:
        """A node, by default one whose kubelet is well."""
        conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": "KubeletReady"}]
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": secrets.token_hex(8), "resourceVersion": "", "labels": labels or {}},
            "spec": spec,
            "status": {"conditions": conditions},
        }
        self._bump(self.nodes[name])

    def edit(self, name: str, **spec: Any) -> None:
        """Somebody else changes the spec of a node."""
        with self._lock:
            self.nodes[name]["spec"].update(spec)
            self._bump(self.nodes[name])

    def annotate(self, name: str, **annotations: str) -> None:
        """Somebody else writes annotations; `__` stands for the slash and dots stay dots."""
        with self._lock:
            found = self.nodes[name]["metadata"].setdefault("annotations", {})
            found.update({key.replace("__", "/").replace("_", "."): text for key, text in annotations.items()})
            self._bump(self.nodes[name])

    def calls(self, method: str = "") -> list[str]:
        """Paths of the requests with this method."""
        return [path for made, path in self.log if not method or made == method]

    def _bump(self, node: dict[str, Any]) -> None:
        self._version += 1
        node["metadata"]["resourceVersion"] = str(self._version)

    # ------------------------------------------------------------------------------------------------- answering

    def take_fault(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.method in {"", method} and fault.path in path:
                self._faults.remove(fault)
                return fault
        return None

    def wait(self, seconds: float) -> bool:
        return self._closed.wait(seconds)

    def carry_out(
        self, method: str, target: str, token: str | None, kind: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        path = tuple(parts.path.strip("/").split("/"))
        data = json.loads(body) if body else None
        with self._lock:
            try:
                return self._route(method, path, query, token, kind, data)
            except RefusedError as refused:
                return refused.code, refused.status

    def _route(
        self, method: str, path: tuple[str, ...], query: dict[str, str], token: str | None, kind: str, data: Any
    ) -> tuple[int, dict[str, Any]]:
        if path == ("api", "v1", "nodes"):
            self._authorize(token, {"GET": "list", "POST": "create"}[method], "nodes")
            return self._create(data) if method == "POST" else (200, self._list(query))
        if path[:3] == ("api", "v1", "nodes"):
            name, *sub = path[3:]
            resource = "/".join(["nodes", *sub])
            self._authorize(token, {"GET": "get", "PATCH": "patch", "DELETE": "delete"}[method], resource, name)
            if name not in self.nodes:
                raise RefusedError(404, "NotFound", f'nodes "{name}" not found')
            if method == "DELETE":
                return 200, self.nodes.pop(name)
            if method == "GET":
                return 200, copy.deepcopy(self.nodes[name])
            return 200, self._patch(name, kind, data, status=bool(sub), dry=query.get("dryRun") == "All")
        if path[:3] == ("api", "v1", "namespaces") and path[4:] == ("events",):
            verb = {"GET": "list", "POST": "create"}[method]
            self._authorize(token, verb, "events", namespace=path[3])
            return (200, {"items": self.events}) if method == "GET" else self._event(path[3], data)
        if asked := Asked(method, path):
            self._authorize(token, asked.verb, asked.resource, asked.name or "", asked.namespace)
            return self.objects.carry_out(asked, data)
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")

    def _authorize(
        self, token: str | None, verb: str, resource: str, name: str = "", namespace: str | None = None
    ) -> None:
        if token == self.admin:
            return
        if token not in self._rights:
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        rights = self._rights[token]
        if any(Right(verb, resource, *where) in rights for where in itertools.product((None, namespace), (None, name))):
            return
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        plain, _, group = resource.split("/", maxsplit=1)[0].partition(".")
        raise RefusedError(
            403,
            "Forbidden",
            f'{plain}{f" {json.dumps(name)}" if name else ""} is forbidden: User "system:serviceaccount:ibmon:ibmon" '
            f'cannot {verb} resource "{resource.removesuffix(f".{group}")}" in API group "{group}" {scope}',
        )

    def _create(self, data: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = data["metadata"]["name"]
        if name in self.nodes:
            raise RefusedError(409, "AlreadyExists", f'nodes "{name}" already exists')
        self.add(name, ready=None, labels=data["metadata"].get("labels"), **data.get("spec", {}))
        # An admission plugin of the real one marks each new node until its kubelet is well.
        self.edit(name, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        return 201, copy.deepcopy(self.nodes[name])

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        names = sorted(self.nodes)
        if "labelSelector" in query:
            key, _, value = query["labelSelector"].partition("=")
            names = [name for name in names if self.nodes[name]["metadata"]["labels"].get(key) == value]
        begin = int(query.get("continue") or 0)
        limit = int(query.get("limit") or 0) or len(names)
        page = names[begin : begin + limit]
        more = {"continue": str(begin + limit)} if begin + limit < len(names) else {}
        items = [copy.deepcopy(self.nodes[name]) for name in page]
        return {"kind": "NodeList", "metadata": {"resourceVersion": str(self._version), **more}, "items": items}

    def _event(self, namespace: str, data: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if namespace != "default":
            raise RefusedError(422, "Invalid", "involvedObject.namespace: does not match event.namespace")
        self.events.append(data)
        return 201, data

    def _patch(self, name: str, kind: str, data: Any, *, status: bool, dry: bool) -> dict[str, Any]:
        if kind != STRATEGIC:
            raise RefusedError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")
        node = copy.deepcopy(self.nodes[name])
        metadata = data.get("metadata", {})
        wanted = metadata.get("resourceVersion")
        if wanted is not None and wanted != node["metadata"]["resourceVersion"]:
            raise RefusedError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; please apply your '
                "changes to the latest version and try again",
            )
        if status:
            _merge_conditions(node, data.get("status", {}).get("conditions", []))
        else:
            _merge_map(node["metadata"], "annotations", metadata.get("annotations", {}))
            _merge_map(node["metadata"], "labels", metadata.get("labels", {}))
            _merge_spec(node["spec"], data.get("spec", {}))
        if node != self.nodes[name]:
            self._bump(node)
        if not dry:
            self.nodes[name] = node
        return copy.deepcopy(node)


def _merge_map(holder: dict[str, Any], key: str, changes: dict[str, str | None]) -> None:
    found = {**holder.get(key, {}), **{k: v for k, v in changes.items() if v is not None}}
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
    if found:
        holder[key] = found
    else:
        holder.pop(key, None)


def _merge_spec(spec: dict[str, Any], changes: dict[str, Any]) -> None:
    if "taints" in changes:  # one atomic list: it replaces what stood there
        for taint in changes["taints"] or ():
            if not _KEY.fullmatch(taint.get("key", "")) or taint.get("effect") not in _EFFECTS:
                raise RefusedError(422, "Invalid", f"spec.taints: Invalid value: {taint}")
        pairs = [(taint["key"], taint["effect"]) for taint in changes["taints"] or ()]
        if len(pairs) != len(set(pairs)):
            raise RefusedError(422, "Invalid", "spec.taints: Duplicate value")
        spec.pop("taints", None)
        if changes["taints"]:
            spec["taints"] = changes["taints"]
    if "unschedulable" in changes:
        spec.pop("unschedulable", None)
        if changes["unschedulable"]:
            spec["unschedulable"] = True


def _merge_conditions(node: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    conditions = node["status"]["conditions"]
    for change in changes:
        known = next((c for c in conditions if c["type"] == change["type"]), None)
        if known is None:
            # The type has these times without "omitempty": one that nobody gave is shown as null.
            conditions.append({"lastHeartbeatTime": None, "lastTransitionTime": None, **change})
        else:
            known.update(change)


# ---------------------------------------------------------------------------------------------------------- HTTP


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: Any, tls: Any) -> None:
        super().__init__(address, handler)
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is not None:
            try:
                request = self._tls.wrap_socket(request, server_side=True)
            except OSError:  # a client that does not trust us
                return
        super().finish_request(request, client_address)
        with contextlib.suppress(OSError):
            request.close()

    def handle_error(self, *_: object) -> None:
        """A client that went away in the middle is what some tests are about."""


def _handler(kube: FakeKube) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kube.log.append((self.command, self.path))
            kube.before(self.command, self.path)
            fault = kube.take_fault(self.command, self.path)
            if fault is not None and fault.what != "lost":
                self._go_wrong(fault)
                return
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
            kind = self.headers.get("Content-Type", "")
            status, answer = kube.carry_out(self.command, self.path, token, kind, body)
            if fault is not None:
                self.close_connection = True
                return
            self._send(status, json.dumps(answer).encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 (the names that http.server looks for)

        def _send(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _go_wrong(self, fault: Fault) -> None:
            self.close_connection = True
            if fault.what == "status":
                self._send(fault.status, fault.body, fault.headers)
            elif fault.what == "garbage":
                self._send(200, fault.body)
            elif fault.what == "hang":
                kube.wait(10)
            elif fault.what == "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            elif fault.what == "drip":
                for part in self._drip():
                    self.wfile.write(part)
            elif fault.what == "huge":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                with contextlib.suppress(OSError):
                    while not kube.wait(0):
                        self.wfile.write(b" " * 65536)

        def _drip(self) -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\n"
            until = time.monotonic() + 10
            while time.monotonic() < until and not kube.wait(0.05):
                yield b"X-Slow: yes\r\n"

    return Handler
