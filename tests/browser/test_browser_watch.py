"""The watch over pages sees what it is for: the other tests are worth as much as these."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

PAGE = """<!doctype html><html lang="en"><head><title>a page</title>{head}</head>
<body><main><h1>A page</h1>{body}</main></body></html>"""


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("", "<script>throw new Error('broken')</script>", "uncaught: .*broken"),
        ("", "<script>console.error('oh')</script>", "console: oh"),
        ("", "<script>alert('here')</script>", "dialog: here"),
        ("", "<img alt='' src='http://127.0.0.1:9/x.png'>", "request to http://127.0.0.1:9/x.png"),
        ("", "<script src='other.js'></script>", "request to file://.*other.js"),
        (
            "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; script-src 'unsafe-inline'\">",
            "<p style='color: red'>red</p>",
            "policy: style-src",
        ),
    ],
)
def test_what_a_page_must_not_do_is_seen(
    open_page: Callable[..., Page], watches: list, tmp_path: Path, head: str, body: str, said: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE.format(head=head, body=body))
    page = open_page(file.as_uri())
    page.wait_for_timeout(100)  # what is said comes after what was asked for
    (watch,) = watches
    assert any(re.search(said, each) for each in watch.found()), watch.wrong
    watch.forgiven.append(".")


def test_a_page_that_nobody_could_read_is_seen(
    open_page: Callable[..., Page], check_accessible: Callable[[Page], None], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE.format(head="", body="<p style='color: #ccc; background: #fff'>pale</p>"))
    with pytest.raises(AssertionError, match="color-contrast"):
        check_accessible(open_page(file.as_uri()))


def test_a_page_that_is_too_wide_is_seen(
    open_page: Callable[..., Page], check_fits: Callable[[Page], None], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE.format(head="", body="<pre>" + "wide " * 200 + "</pre>"))
    with pytest.raises(AssertionError, match="wide"):
        check_fits(open_page(file.as_uri()))
