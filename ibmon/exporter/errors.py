"""The one error of the exporter. Its text is one line that says what is wrong and what to do."""

from __future__ import annotations


class ExporterError(Exception):
    """The exporter cannot serve as it is configured: an address, a certificate or a password file is wrong."""
