"""Metrics text, HTTP and the status page, all from one immutable snapshot.

Owns what is served and how. It must not touch hardware, judge, or format self metrics during a request.
"""
