"""The sources of the site are complete, and links that lead nowhere are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the extra docs brings it")

from tools.docs_site import entries, links, source
from tools.docs_site.names import pages

HTML = "<html><head>{head}</head><body><h1 id='top'>Page</h1>{body}</body></html>"


def site(folder: Path, body: str, head: str = "") -> list[str]:
    (folder / "other.html").write_text(HTML.format(head="", body="<p id='here'></p>"))
    (folder / "index.html").write_text(HTML.format(head=head, body=body))
    return links.faults(folder)


def test_good_links_pass(tmp_path: Path) -> None:
    body = "<a href='other.html#here'></a><a href='#top'></a><a href='https://example.org/x'></a>"
    assert site(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "head", "fault"),
    [
        ("<a href='gone.html'></a>", "", "index.html: gone.html is not there"),
        ("<a href='other.html#gone'></a>", "", "index.html: other.html#gone names no place on its page"),
        ("<a href='#gone'></a>", "", "index.html: #gone names no place on its page"),
        ("<img src='gone.png'>", "", "index.html: gone.png is not there"),
        (
            "",
            "<script src='https://cdn.example.org/x.js'></script>",
            "index.html loads https://cdn.example.org/x.js",
        ),
    ],
)
def test_bad_links_are_found(tmp_path: Path, body: str, head: str, fault: str) -> None:
    assert site(tmp_path, body, head) == [fault]


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert links.faults(tmp_path) == [f"{tmp_path} has no page"]


def test_every_page_and_every_page_of_the_reference_is_written(tmp_path: Path) -> None:
    source.main(tmp_path)
    for page in source.DOCS.rglob("*.md"):
        assert (tmp_path / page.relative_to(source.DOCS)).exists()
    for written in pages():
        text = (tmp_path / "reference" / f"{written.file}.rst").read_text("utf-8")
        assert text.count("\n.. py:") >= len(written.names)  # each has an entry, and methods have some, too
    (tmp_path / "left.md").write_text("of a page that is gone")
    source.main(tmp_path)
    assert not (tmp_path / "left.md").exists()


def test_the_first_page_names_every_page() -> None:
    listed = {page for _, text in source.SECTION.findall((source.DOCS / "index.md").read_text("utf-8"))
              for _, _, page in source.LISTED.findall(text)}  # fmt: skip
    there = {str(page.relative_to(source.DOCS).with_suffix("")) for page in source.DOCS.glob("*.md")}
    assert there - {"index"} <= listed


def test_stars_and_last_underscores_are_escaped() -> None:
    assert (
        entries.escaped("(N, *size), from_ to; ``a_``, :func:`b_`")
        == r"(N, \*size), from\_ to; ``a_``, :func:`b_`"
    )
    assert entries.escaped("Example:\n    >>> f(*x_)\n    1") == "Example:\n    >>> f(*x_)\n    1"


@pytest.mark.parametrize("index", ["index.md", "course/README.md", "decisions/README.md"])
def test_every_page_of_a_folder_stands_in_its_list(index: str) -> None:
    page = source.DOCS / index
    listed = {f"{link}.md" for _, above, link in source.LISTED.findall(page.read_text("utf-8")) if not above}
    assert {other.name for other in page.parent.glob("*.md")} <= {*listed, page.name}


def test_links_stay_on_the_site() -> None:
    """Whatever else the checkout has is named, and not linked."""
    beside = {source.ROOT / name for name in source.BESIDE}
    for page in source.DOCS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            target = (page.parent / link).resolve()
            assert target.is_relative_to(source.DOCS) or target in beside, (page.name, link)
