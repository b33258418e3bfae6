"""A page of HTML as a browser takes it."""

from html.parser import HTMLParser

VOID = ("meta", "br", "hr", "img", "wbr", "link", "input")


class Page(HTMLParser):
    """Texts, attributes, ids and links of a page: its elements are closed, and nothing runs or is fetched."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)
        assert not self.open
        self.ids, self.links = ([v for n, v in self.attributes if n == name] for name in ("id", "href"))
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        for name, value in attrs:
            assert name != "src"
            assert not name.startswith("on")
            self.attributes.append((name, value or ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
