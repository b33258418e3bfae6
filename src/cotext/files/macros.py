"""Office files without their macros."""

import posixpath
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cotext.files.archive import Archive
from cotext.runtime.xml import parse, serialised

if TYPE_CHECKING:
    from lxml import etree

# Parts that hold code, of Office and of OpenDocument.
_CODE: Final = re.compile(
    r"(?:.*/)?vbaProject(?:Signature\w*)?\.bin|(?:.*/)?vbaData\.xml|(?:.*/)?_rels/vba\w+\.\w+\.rels"
    r"|(?:Basic|Scripts)/.*",
    re.IGNORECASE,
)
_LISTINGS: Final = ("[Content_Types].xml", "META-INF/manifest.xml")
_NAMING: Final = ("Target", "PartName", "{urn:oasis:names:tc:opendocument:xmlns:manifest:1.0}full-path")


def without_macros(content: bytes, name: str) -> bytes:
    """An office file without the parts that hold code, and without a word of them; itself where it has none.

    Raises:
        CotextError: damaged or beyond a limit; `name` names it.
    """
    archive = Archive(content, name)
    dropped = {part for part in archive.names if _CODE.fullmatch(part)}
    changed: dict[str, bytes] = {}
    for part in archive.names if dropped else ():
        if part not in dropped and (part.endswith(".rels") or part in _LISTINGS):
            original = archive.read(part)
            tree = parse(original, f"{name}: {part}")
            folder = posixpath.dirname(posixpath.dirname(part)) if part.endswith(".rels") else ""
            if _forget(tree.getroot(), folder, dropped):
                changed[part] = serialised(tree, original)
    return archive.written(changed, dropped)


def _forget(root: "etree._Element", folder: str, dropped: set[str]) -> bool:
    """Take the children out that name one of these parts; whether there were any."""
    found = False
    for child in list(root):
        for attribute in _NAMING:
            target = posixpath.join("/", folder, unquote(child.get(attribute) or "/"))
            if posixpath.normpath(target).lstrip("/") in dropped:
                root.remove(child)
                found = True
                break
    return found
