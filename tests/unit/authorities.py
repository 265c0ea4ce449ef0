"""A certificate authority for servers on the loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path


class Authority:
    """A certificate authority of its own, and what it has signed for 127.0.0.1."""

    def __init__(self, directory: Path, name: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.ca = directory / f"{name}-ca.pem"
        self._write(self.ca, self._signed(self._name, self._key, authority=True))

    def _signed(self, subject, key, *, authority):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = dt.datetime.now(dt.timezone.utc)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        usage = x509.KeyUsage(*[authority or i == 0 for i in range(7)], encipher_only=False, decipher_only=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(own, critical=False)
        )
        return built.sign(self._key, hashes.SHA256())

    def _write(self, path, certificate, key=None):
        from cryptography.hazmat.primitives import serialization as s

        text = certificate.public_bytes(s.Encoding.PEM)
        if key is not None:
            text += key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        path.write_bytes(text)

    def sign(self, name: str) -> Path:
        """A file with a certificate and its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        path = self._directory / f"{name}.pem"
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._write(path, self._signed(subject, key, authority=False), key)
        return path

    def server(self, *, clients: bool = False) -> ssl.SSLContext:
        """What a server of this authority speaks; with `clients` only to those that show a certificate of it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.sign("server"))
        if clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
