"""A page as tests read it: every element closed, its ids, headings and words."""

from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "br", "img"}
OURS = "answer-json"
"""The element with the JSON of the answer."""


class Page(HTMLParser):
    """Attributes of all elements, texts of those with an id, headings of tables."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.stack: list[tuple[str, str | None]] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.ids: dict[str, list[str]] = {}
        self.headings: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.stack, f"not closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        identity = dict(attrs).get("id")
        if identity is not None:
            assert identity not in self.ids, f"id {identity} twice"
            self.ids[identity] = []
        if tag == "th":
            self.headings.append("")
        if tag not in VOID:
            self.stack.append((tag, identity))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1][0] == tag, (tag, self.stack[-3:])
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        for tag, identity in self.stack:
            if identity is not None:
                self.ids[identity].append(data)
            if tag == "th":
                self.headings[-1] += data
        if self.stack and self.stack[-1][0] not in ("script", "style"):
            self.words.append(data)

    def text(self, identity: str) -> str:
        """All text within an element."""
        return "".join(self.ids[identity])

    def values(self, name: str) -> list[Any]:
        """Values of an attribute, in order."""
        return [value for _, key, value in self.attributes if key == name]
