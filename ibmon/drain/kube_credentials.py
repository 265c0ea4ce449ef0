"""Whom to ask and as whom: a pod's service account, or a kubeconfig file. Read anew for every call.

Tokens and authorities are rotated under a running process, so nothing is kept. It opens no connection, and no text of
an error or a repr holds what is secret.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import urllib3

from ibmon.ports import SchedulerError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_T = TypeVar("_T")


class CredentialsError(SchedulerError):
    """There is no usable way to the API server; the text says which file or variable to look at."""

    def __init__(self, text: str) -> None:
        super().__init__(text, general=True)


class Access:
    """One way to an API server: address, TLS and token. It shows as its address only."""

    __slots__ = ("context", "host", "port", "prefix", "server_name", "token")

    def __init__(
        self, url: str, *, context: ssl.SSLContext | None = None, token: str | None = None, server_name: str = ""
    ) -> None:
        try:
            parts = urllib3.util.parse_url(url)
        except urllib3.exceptions.LocationParseError:
            parts = urllib3.util.Url()
        if parts.scheme not in {"http", "https"} or not parts.host:
            raise CredentialsError(f"{url!r} is no address of an API server; write it like https://10.0.0.1:6443")
        self.host = parts.host.strip("[]")
        if parts.scheme == "http" and not _loopback(self.host):
            raise CredentialsError(f"{url} is not encrypted, and a token would be for everybody to read: use https")
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = (parts.path or "").rstrip("/")
        self.context = (context or _trust(None)) if parts.scheme == "https" else None
        self.token = token
        self.server_name = server_name

    def __repr__(self) -> str:
        return f"<Access {self.host}:{self.port}>"


def find(kubeconfig: str, context: str, environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> Access:
    """The way that is configured, else that of the pod this process runs in; CredentialsError where there is none."""
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context)
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise CredentialsError("this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set): set kubeconfig")
    return in_cluster(host, environ.get("KUBERNETES_SERVICE_PORT", "443"), directory)


def in_cluster(host: str, port: str, directory: Path = SERVICE_ACCOUNT) -> Access:
    """The service account that Kubernetes mounts into a pod."""
    token = _text(directory / "token").strip()
    if not token:
        raise CredentialsError(f"{directory / 'token'} is empty")
    where = f"[{host}]" if ":" in host else host
    return Access(f"https://{where}:{port}", context=_trust(_text(directory / "ca.crt")), token=token)


# ------------------------------------------------------------------------------------------------- kubeconfig


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    exec: Any = None
    auth_provider: Any = None


class _Pair(msgspec.Struct):
    cluster: str
    user: str


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Pair


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


def from_kubeconfig(path: Path, context: str = "") -> Access:
    """The way that a context of a kubeconfig file (YAML or JSON) names, by default the current one.

    Tokens, token files and client certificates are understood. Exec plugins, auth providers, passwords, proxies and
    unverified TLS are not: CredentialsError says so.
    """
    file = _decode(path)
    name = context or file.current_context or ""
    pair = _named(path, "context", {c.name: c.context for c in file.contexts or ()}, name)
    cluster = _named(path, "cluster", {c.name: c.cluster for c in file.clusters or ()}, pair.cluster)
    user = _named(path, "user", {u.name: u.user for u in file.users or ()}, pair.user)
    _refuse(path, cluster, user)
    base = path.parent
    authority = _inline(path, "certificate-authority-data", cluster.certificate_authority_data)
    if authority is None and cluster.certificate_authority:
        authority = _text(base / cluster.certificate_authority)
    trust = _trust(authority)
    _identify(trust, path, user)
    token = _text(base / user.token_file).strip() if user.token_file else user.token
    return Access(cluster.server, context=trust, token=token or None, server_name=cluster.tls_server_name or "")


def _decode(path: Path) -> _File:
    text = _text(path)
    try:
        if text.lstrip().startswith("{"):
            return msgspec.json.decode(text, type=_File)
        return msgspec.yaml.decode(text, type=_File)
    except ImportError:
        why = "is YAML, which takes PyYAML: install ibmon[kubernetes], or write the file as JSON"
    except msgspec.ValidationError as error:
        why = f"is no kubeconfig: {error}"  # names the place and the kind, never the value
    except msgspec.DecodeError:
        why = "is neither YAML nor JSON"  # the parser's own words quote the file, and so its secrets
    raise CredentialsError(f"{path} {why}")


def _named(path: Path, kind: str, known: Mapping[str, _T], name: str) -> _T:
    if name not in known:
        raise CredentialsError(f"{path} has no {kind} {name!r}; it has {', '.join(sorted(known)) or 'none'}")
    return known[name]


def _refuse(path: Path, cluster: _Cluster, user: _User) -> None:
    """Say what is not understood, rather than go on without it."""
    for found, what, instead in (
        (user.exec, "exec plugins", "use a token, a tokenFile or a client certificate"),
        (user.auth_provider, "auth providers", "use a token, a tokenFile or a client certificate"),
        (user.username, "user names with passwords", "use a token, a tokenFile or a client certificate"),
        (cluster.proxy_url, "proxies", "name the API server itself"),
        (cluster.insecure_skip_tls_verify, "TLS without verification", "give its certificate-authority"),
    ):
        if found:
            raise CredentialsError(f"{path}: {what} are not supported; {instead}")


def _identify(context: ssl.SSLContext, path: Path, user: _User) -> None:
    """Load the user's client certificate, if there is one."""
    certificate = _pem(path, "client-certificate", user.client_certificate, user.client_certificate_data)
    key = _pem(path, "client-key", user.client_key, user.client_key_data)
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise CredentialsError(f"{path} has only one of client-certificate and client-key")
    # OpenSSL takes certificates from files only; this one exists in memory and in no directory.
    handle = os.memfd_create("ibmon-client-certificate")
    try:
        os.write(handle, f"{certificate}\n{key}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=_no_password)
    except (ssl.SSLError, ValueError):
        raise CredentialsError(f"{path}: its client certificate and key do not fit or are no PEM") from None
    finally:
        os.close(handle)


def _no_password() -> str:
    raise ValueError("an encrypted key")  # instead of OpenSSL's question at the terminal


def _pem(path: Path, key: str, file: str | None, data: str | None) -> str | None:
    inline = _inline(path, f"{key}-data", data)
    return _text(path.parent / file) if inline is None and file else inline


def _inline(path: Path, key: str, data: str | None) -> str | None:
    if not data:
        return None
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise CredentialsError(f"{path}: {key} is no base64 of PEM text") from None


# -------------------------------------------------------------------------------------------------------- parts


def _trust(authority: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise CredentialsError("the certificate authority of the API server is no PEM certificate") from None
    # Python 3.13 begins to demand extensions that the authorities of many clusters lack; chain and name are verified
    # all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CredentialsError(f"{path} cannot be read: {(error.strerror or 'error').lower()}") from None
    except UnicodeDecodeError:
        raise CredentialsError(f"{path} is no text") from None


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
