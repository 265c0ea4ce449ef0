"""TLS as the configuration asks for it: one context, made from files.

Owns the loading and its error texts. It must not open connections.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from ibmon.config import ControllerConfig, ExporterConfig
from ibmon.exporter.errors import ExporterError


def load_context(config: ExporterConfig | ControllerConfig) -> ssl.SSLContext | None:
    """The server's context (TLS 1.2 or newer), or None where no certificate is configured.

    With `client_ca` a client must show a certificate that it has signed. Without `tls_key` the key stands in the
    certificate's file.

    Raises:
        ExporterError: a file is missing, unreadable or not what it should be, or the keys do not fit together.
    """
    section = "exporter" if isinstance(config, ExporterConfig) else "controller"
    client_ca = config.client_ca if isinstance(config, ExporterConfig) else ""
    if not config.tls_cert:
        for key, name in (("tls_key", config.tls_key), ("client_ca", client_ca)):
            if name:
                raise ExporterError(f"{section}.{key} is set, but {section}.tls_cert is not; set both or neither")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, config.tls_cert, config.tls_key, section)
    if client_ca:
        _load_client_ca(context, client_ca)
    return context


def load_certificate(context: ssl.SSLContext, cert: str, tls_key: str, section: str) -> None:
    """Give a context the certificate and key of these files, for the handshakes from now on; ExporterError if wrong."""
    _must_read(f"{section}.tls_cert", cert)
    if tls_key:
        _must_read(f"{section}.tls_key", tls_key)
    key = tls_key or cert
    try:
        context.load_cert_chain(cert, tls_key or None, password=lambda: _refuse(f"{section}.tls_key", key))
    except (ssl.SSLError, OSError) as error:
        raise ExporterError(
            f"{section}.tls_cert: {cert} with the key in {key} is not usable: {_reason(error)}; "
            "both must be PEM and belong together"
        ) from error


def _load_client_ca(context: ssl.SSLContext, path: str) -> None:
    _must_read("exporter.client_ca", path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise ExporterError(f"exporter.client_ca: {path} holds no PEM certificate: {_reason(error)}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _must_read(key: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise ExporterError(f"{key}: {path} cannot be read: {error.strerror}") from error


def _refuse(key: str, path: str) -> str:
    """Called where the key is encrypted: OpenSSL would ask on the terminal of a daemon."""
    raise ExporterError(f"{key}: the key in {path} is encrypted; a daemon needs one without a passphrase")


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
