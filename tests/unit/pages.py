"""A page of ours as a browser would take it apart."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "input"}


class Page(HTMLParser):
    """Checks nesting, and collects the text and every attribute that could load or run something."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words, self.loads, self.tags, self.ids = [], [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.loads += [(tag, name, value) for name, value in attrs if name in {"src", "href"}]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert "script" not in self.open or not data.strip()
        if "template" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)
