"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is the most like this one; None where none is at least so much (0 to 1) like it."""
    import difflib  # takes 0.4 MiB, which a daemon that nobody mistypes a word to can do without

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)
