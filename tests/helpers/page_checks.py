"""What every page has to be: whole, without anything from elsewhere, and with links that lead somewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "hr", "img", "path", "circle", "rect", "line", "use", "polyline", "polygon"}
OPEN_ENDED = {"td", "th", "tr", "dt", "dd", "li", "thead", "tbody", "p", "option"}
"""Whose closing tags HTML lets be left out."""


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: Counter[str] = Counter()
        self.headings: list[int] = []
        self.attributes: Counter[str] = Counter()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID | OPEN_ENDED:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        for name, value in attrs:
            self.attributes[name] += 1
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "xlink:href"):
                self.links.append(value or "")
            elif name == "src":
                self.sources.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID | OPEN_ENDED:
            return
        assert self.open[-1:] == [tag], (tag, self.open[-3:])
        self.open.pop()


def checked(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    assert page.sources == []
    assert [link for link in page.links if not link.startswith("#")] == []
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert [name for name in page.attributes if name.startswith("on") or name == "style"] == []
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert [(before, after) for before, after in steps if after > before + 1] == []
    for kind in ("style", "script"):
        for inside in re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL):
            assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in text.replace("&#39;", "'")
    return page
