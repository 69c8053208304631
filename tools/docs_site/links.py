"""Check a built site: every link leads to a page and to a place on it, and nothing is loaded from elsewhere.

python -m tools.docs_site.links FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
    ("object", "data"),
}
"""What a browser fetches to show a page."""


@dataclass
class Links(HTMLParser):
    """The links of a page, what it loads, and the places on it that links can name."""

    found: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)
            elif name == "href":
                self.found.append(value)


def read(path: Path) -> Links:
    links = Links()
    links.feed(path.read_text("utf-8"))
    return links


def faults(folder: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path.resolve(): read(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        return [f"{folder} has no page"]
    found = []
    for path, links in pages.items():
        page = path.relative_to(folder.resolve())
        found += [
            f"{page} loads {link}" for link in links.loaded if urlsplit(link).scheme not in ("", "data")
        ]
        for link in [*links.found, *links.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{page}: {link} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{page}: {link} names no place on its page")
    return found


if __name__ == "__main__":
    problems = faults(Path(sys.argv[1]))
    print("\n".join(problems) or "All links lead somewhere.")
    sys.exit(bool(problems))
