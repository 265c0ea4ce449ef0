"""TLS, client certificates and passwords on a real socket."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import http.client
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from exporter_snapshots import typical
from exporter_waiting import PATIENCE, until

from ibmon.config import ExporterConfig
from ibmon.exporter.errors import ExporterError
from ibmon.exporter.server import Server

NAME = x509.NameAttribute(NameOID.COMMON_NAME, "ibmon test")
START = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
END = dt.datetime(2100, 1, 1, tzinfo=dt.timezone.utc)

USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Authority:
    """A certificate authority that writes what it signs into a directory."""

    def __init__(self, directory, name):
        self.directory, self.key = directory, ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        ca = (x509.BasicConstraints(ca=True, path_length=None), x509.KeyUsage(**usage))
        self.ca = self._write(f"{name}.ca.pem", self._sign(self.key, self.subject, *ca))

    def _sign(self, key, subject, *extensions):
        builder = x509.CertificateBuilder(self.subject, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(START).not_valid_after(END)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        # Python 3.13 verifies strictly: both key identifiers must be there.
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        for identifier in (own, issuer):
            builder = builder.add_extension(identifier, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def _write(self, name, certificate):
        path = self.directory / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def issue(self, name, password=None):
        """Paths of a certificate for 127.0.0.1 and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._write(f"{name}.pem", self._sign(key, x509.Name([NAME]), host))
        sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        path = self.directory / f"{name}.key"
        pem = serialization.Encoding.PEM
        path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, sealed))
        return certificate, str(path)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "site")


@contextlib.contextmanager
def serving(**config):
    server = Server(ExporterConfig(listen="127.0.0.1:0", **config), typical)
    server.start()
    try:
        yield server
    finally:
        server.close()
        until(lambda: not server._connections)


def trusting(authority, certificate=None, **limits):
    context = ssl.create_default_context(cafile=authority.ca)
    if certificate:
        context.load_cert_chain(*certificate)
    for name, value in limits.items():
        setattr(context, name, value)
    return context


def get(server, path, context=None, **headers):
    make = http.client.HTTPSConnection if context else http.client.HTTPConnection
    options = {"context": context} if context else {}
    client = make("127.0.0.1", server.address.port, timeout=PATIENCE, **options)
    with contextlib.closing(client):
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read()


def test_metrics_are_served_over_tls(authority):
    certificate, key = authority.issue("node")
    with serving(tls_cert=certificate, tls_key=key) as server:
        status, _, body = get(server, "/metrics", trusting(authority))
        assert (status, b"ibmon_up 1\n" in body) == (200, True)
        assert server.url.startswith("https://")


def test_certificate_and_key_may_stand_in_one_file(authority, tmp_path):
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(path).read_text() for path in authority.issue("node")))
    with serving(tls_cert=str(both)) as server:
        assert get(server, "/metrics", trusting(authority))[0] == 200


def test_tls_older_than_1_2_is_refused(authority):
    certificate, key = authority.issue("node")
    with serving(tls_cert=certificate, tls_key=key) as server:
        assert server._context.minimum_version is ssl.TLSVersion.TLSv1_2
        context = trusting(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
        assert get(server, "/metrics", context)[0] == 200


def test_plain_http_to_a_tls_port_harms_nobody(authority):
    certificate, key = authority.issue("node")
    with serving(tls_cert=certificate, tls_key=key) as server:
        with pytest.raises((http.client.HTTPException, OSError)):
            get(server, "/metrics")
        assert get(server, "/metrics", trusting(authority))[0] == 200


def test_a_client_that_does_not_shake_hands_does_not_block_others(authority):
    certificate, key = authority.issue("node")
    with (
        serving(tls_cert=certificate, tls_key=key) as server,
        socket.create_connection(("127.0.0.1", server.address.port), PATIENCE),
    ):
        assert get(server, "/metrics", trusting(authority))[0] == 200


def test_with_a_client_ca_only_its_certificates_are_let_in(authority, tmp_path):
    certificate, key = authority.issue("node")
    other = Authority(tmp_path, "other")
    with serving(tls_cert=certificate, tls_key=key, client_ca=authority.ca) as server:
        assert get(server, "/metrics", trusting(authority, authority.issue("prometheus")))[0] == 200
        for stranger in (None, other.issue("stranger")):
            with pytest.raises((http.client.HTTPException, OSError)):
                get(server, "/metrics", trusting(authority, stranger))


def test_a_reload_takes_the_new_certificate_and_a_bad_one_leaves_the_old(authority, tmp_path):
    certificate, key = authority.issue("node")
    with serving(tls_cert=certificate, tls_key=key) as server:
        renewed = Authority(tmp_path, "renewed")
        renewed.issue("node")
        assert get(server, "/metrics", trusting(authority))[0] == 200
        server.reload()
        assert get(server, "/metrics", trusting(renewed))[0] == 200
        with pytest.raises(ssl.SSLError):
            get(server, "/metrics", trusting(authority))
        (tmp_path / "node.pem").write_text("nonsense")
        with pytest.raises(ExporterError, match=r"^exporter\.tls_cert: "):
            server.reload()
        assert get(server, "/metrics", trusting(renewed))[0] == 200


def broken(authority, tmp_path):
    """Configurations that cannot be served, each with the words that its error must hold."""
    certificate, key = authority.issue("node")
    _, other_key = authority.issue("other")
    sealed_certificate, sealed_key = authority.issue("sealed", b"passphrase")
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    missing = str(tmp_path / "missing")
    return [
        ({"tls_cert": missing, "tls_key": key}, "exporter.tls_cert: ", "cannot be read: No such file"),
        ({"tls_cert": certificate, "tls_key": missing}, "exporter.tls_key: ", "cannot be read: No such file"),
        ({"tls_cert": certificate, "tls_key": other_key}, "exporter.tls_cert: ", "belong together"),
        ({"tls_cert": certificate}, "exporter.tls_cert: ", "must be PEM"),
        ({"tls_cert": str(nonsense), "tls_key": key}, "exporter.tls_cert: ", "must be PEM"),
        ({"tls_cert": sealed_certificate, "tls_key": sealed_key}, "exporter.tls_key: ", "is encrypted"),
        ({"tls_cert": certificate, "tls_key": key, "client_ca": missing}, "exporter.client_ca: ", "cannot be read"),
        ({"tls_cert": certificate, "tls_key": key, "client_ca": str(nonsense)}, "exporter.client_ca: ", "no PEM"),
        ({"tls_key": key}, "exporter.tls_key ", "exporter.tls_cert is not"),
        ({"client_ca": authority.ca}, "exporter.client_ca ", "exporter.tls_cert is not"),
        ({"tls_cert": str(tmp_path), "tls_key": key}, "exporter.tls_cert: ", "Is a directory"),
    ]


@pytest.mark.parametrize("case", range(11))
def test_bad_files_are_one_clear_line_before_anything_listens(authority, tmp_path, case):
    config, starts, says = broken(authority, tmp_path)[case]
    with pytest.raises(ExporterError) as caught:
        Server(ExporterConfig(listen="127.0.0.1:0", **config), typical)
    line = str(caught.value)
    assert line.startswith(starts)
    assert says in line
    assert "\n" not in line


def test_every_bad_configuration_has_its_case(authority, tmp_path):
    assert len(broken(authority, tmp_path)) == 11


# ---------------------------------------------------------------------------------------------- passwords


def basic(text):
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users"
    path.write_text("prometheus:secret\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/status", "/none"])
def test_without_a_password_nothing_is_told(users, path):
    with serving(basic_auth_file=str(users)) as server:
        status, headers, body = get(server, path)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="ibmon", charset="UTF-8"')
        assert b"ibmon_" not in body
        assert get(server, path, **basic("prometheus:wrong"))[0] == 401
        assert get(server, path, **basic("prometheus:secret"))[0] in {200, 404}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_password(users, path):
    with serving(basic_auth_file=str(users)) as server:
        assert get(server, path)[0] in {200, 503}


def test_a_reload_takes_new_passwords_on_open_connections_too(users):
    with serving(basic_auth_file=str(users)) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=PATIENCE)
        with contextlib.closing(client):

            def status(password):
                client.request("GET", "/metrics", headers=basic(f"prometheus:{password}"))
                answer = client.getresponse()
                answer.read()
                return answer.status

            assert status("secret") == 200
            client.auto_open = 0  # the same connection from here on
            users.write_text("prometheus:changed\n")
            server.reload()
            assert status("secret") == 401
            assert status("changed") == 200
