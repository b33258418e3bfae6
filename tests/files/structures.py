"""Random files of every format."""

# ruff: noqa: E501

import random
from collections.abc import Callable

from tests.files import test_docx, test_epub, test_po, test_pptx

WORDS = ["the", "cat", "sees", "a", "small dog", "Mr. X.", "and", "tree", "été", "東京", "12", "it's"]


def words(draw: random.Random, most: int = 5) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def html(draw: random.Random) -> tuple[bytes, str]:
    parts = [
        *("<p>{}", "</p>", "<p>{}</p>", "<li>{}", "<ul><li>{}</ul>", "<td>{}", "<table><tr><td>{}</table>"),
        *("<b>{}</b>", "<b>{}", "</b>", "<i>{}</i> ", " <a href='x'>{}</a>", "<a>{}<a>{}</a></a>", "<br>", "<br/>"),
        *("<img alt='{}' src=x>", "<img src=x>", "<span>{}</span>", "<code>{}</code>", "<div>{}</div>", "{}"),
        *("<button>{}</button>", "<input type=submit value='{}'>", "<option>{}", "<select><option>{}</select>"),
        *("<script>var a = '<p>{}</p>';</script>", "<style>p {{}}</style>", "<!-- {} -->", "<pre>{}</pre>"),
        *("<!--[if IE]><p>{}</p><![endif]-->", "&nbsp;", "&amp", "&copy {}", "&lt;", "\n  ", " ", "<svg><text>{}</text></svg>"),
        *("<p translate='no'>{}</p>", "<span class=notranslate>{}</span>", "<textarea>{}\n {}</textarea>", "<h1>{}</h1>"),
        *("<span title='{}'>{}</span>", "<p title=\"{}\">", "<wbr>", "<sup><a href='#1'>1</a></sup>", "</div>", "<u/>"),
        *("<noscript><p>{}</p></noscript>", "<dl><dt>{}<dd>{}</dl>", "<label>{}<input></label>", "< {}", "<3 {}"),
        *("<title>{}</title>", "<b><p>{}</b>{}</p>", "<i><b>{}</i>{}</b>", "<template>{}</template>", "<x-y>{}</x-y>"),
    ]  # fmt: skip
    body = "".join(_filled(draw, draw.choice(parts)) for _ in range(draw.randint(1, 9)))
    head = draw.choice(
        ["<!DOCTYPE html><html><head><meta charset=utf-8></head><body>", "<html>", "<div>", "<p>"]
    )
    return (head + body + draw.choice(["</body></html>", "", "\n"])).encode(), "a.html"


def _filled(draw: random.Random, part: str) -> str:
    for _ in range(part.count("{}")):
        part = part.replace("{}", words(draw), 1)
    return part.replace("{{", "{").replace("}}", "}")


def docx(draw: random.Random) -> tuple[bytes, str]:
    run = test_docx.run

    def piece(depth: int = 0) -> str:
        kind = draw.randrange(22)
        text = draw.choice(["", " "]) + words(draw) + draw.choice(["", " "])
        look = draw.choice(
            ["", "", "<w:b/>", "<w:i/>", "<w:vanish/>", "<w:rtl/>", '<w:color w:val="FF0000"/>']
        )
        number = draw.randrange(1000)
        inner = "" if depth > 2 else "".join(piece(depth + 1) for _ in range(draw.randint(0, 3)))
        box = f"<w:txbxContent><w:p>{inner}</w:p></w:txbxContent>"
        return [
            run(text, look),
            run(text, look),
            "".join(run(c if c != " " else " ", draw.choice(["", "<w:b/>"])) for c in text),
            f'<w:hyperlink w:anchor="x">{inner}</w:hyperlink>',
            f"<w:ins w:id='{number}'>{inner}</w:ins>",
            f"<w:del><w:r><w:delText>{text}</w:delText></w:r></w:del>",
            f"<w:moveFrom>{run(text)}</w:moveFrom>",
            f"<w:moveTo>{run(text)}</w:moveTo>",
            test_docx.FIELD.format("PAGE", run("7")),
            test_docx.FIELD.format("HYPERLINK x", inner),
            '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
            '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>TOC</w:instrText></w:r>',
            f"<w:sdt><w:sdtPr/><w:sdtContent>{inner}</w:sdtContent></w:sdt>",
            f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{run(text)}</w:sdtContent></w:sdt>",
            f'<w:bookmarkStart w:id="{number}"/>{inner}<w:bookmarkEnd w:id="{number}"/>',
            "<w:r><w:tab/><w:br/></w:r>",
            "<w:r><w:t>a</w:t><w:noBreakHyphen/><w:softHyphen/><w:t>b</w:t></w:r>",
            '<w:r><w:sym w:font="Wingdings" w:char="F0E0"/></w:r>',
            f"<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing>{box}</w:drawing></mc:Choice>"
            f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r>",
            '<w:r><w:footnoteReference w:id="2"/></w:r>',
            f"<w:smartTag>{inner}</w:smartTag>",
            "<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>",
        ][kind]

    def paragraph() -> str:
        return f"<w:p><w:pPr/>{''.join(piece() for _ in range(draw.randint(0, 6)))}</w:p>"

    def table(depth: int = 0) -> str:
        nested = table(depth + 1) if depth < 2 and draw.random() < 0.3 else ""
        return f"<w:tbl><w:tr><w:tc>{paragraph()}{nested}{paragraph()}</w:tc></w:tr></w:tbl>"

    body = "".join(draw.choice([paragraph, paragraph, table])() for _ in range(draw.randint(1, 4)))
    footnotes = f'<w:footnote w:id="2">{paragraph()}</w:footnote>'
    return test_docx.document(body, footnotes=footnotes, header=paragraph()), "a.docx"


def epub(draw: random.Random) -> tuple[bytes, str]:
    def piece(depth: int = 0) -> str:
        inner = words(draw) if depth > 2 else "".join(piece(depth + 1) for _ in range(draw.randint(0, 3)))
        kinds = "{}|<b>{}</b>|<a href='x'>{}</a>|<br/>|<span>{}</span> |<img src='x' alt='x'/>|&#160;&amp;| "
        return draw.choice([words(draw), *(kind.format(inner) for kind in kinds.split("|"))])

    body = f"<p>{''.join(piece() for _ in range(5))}</p><div>{piece()}<p>{piece()}</p>{piece()}</div>"
    return test_epub.book(**{"OEBPS/text/one.xhtml": test_epub.page(body)}), "a.epub"


def pptx(draw: random.Random) -> tuple[bytes, str]:
    run = test_pptx.run

    def piece() -> str:
        look = draw.choice(["", "", "b='1'", "i='1'"])
        return draw.choice(
            [
                *(run(words(draw), look), run(" "), run(words(draw) + " ", look)),
                *("<a:br/>", "<a:r><a:t/></a:r>", test_pptx.NUMBER),
            ]
        )

    paragraphs = (f"<a:pPr/>{''.join(piece() for _ in range(4))}<a:endParaRPr/>" for _ in range(3))
    return test_pptx.presentation(*paragraphs), "a.pptx"


def subtitles(draw: random.Random) -> tuple[bytes, str]:
    kind = draw.choice(["srt", "vtt"])
    cues = []
    for n in range(1, draw.randint(2, 7)):
        line = words(draw) + draw.choice(["", ".", "?", ","])
        if draw.random() < 0.3:
            line = f"{line}{draw.choice(['%', ' '])}{words(draw)}."
        forms = "{}|{}|<i>{}</i>|- {}|(x) {}|<b>a</b> {}|♪{}♪|{{\\an8}}{}|<i>{}|[{}|"
        line = draw.choice(forms.split("|")).format(line)
        line = line.replace("%", "\n")
        if kind == "srt":
            cues.append(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{line}\n\n")
        else:
            cues.append(f"00:{n:02}.000 --> 00:{n:02}.900\n{line}\n\n")
    return ("WEBVTT\n\n" * (kind == "vtt") + "".join(cues)).encode(), f"a.{kind}"


def po(draw: random.Random) -> tuple[bytes, str]:
    flags = draw.choice(["", "#, c-format\n", "#, python-format\n", "#, python-brace-format\n"])
    texts = [
        f"{words(draw)} {draw.choice(['%s', '{name}', '<b>x</b>', '_File', 'x', '100 %'])}" for _ in range(4)
    ]
    entries = "".join(f'{flags}msgid "{n} {text}"\nmsgstr ""\n\n' for n, text in enumerate(texts))
    entries += (
        f'msgid "{words(draw)} file\\nand\\n"\nmsgid_plural "%d files\\nand\\n"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )
    return (test_po.HEADER + entries).encode(), "a.po"


def xliff(draw: random.Random) -> tuple[bytes, str]:
    def piece(depth: int = 0) -> str:
        n = draw.randrange(10**6)
        inner = words(draw) if depth > 2 else "".join(piece(depth + 1) for _ in range(draw.randint(0, 3)))
        return draw.choice([words(draw), " ", f'<g id="{n}">{inner}</g>', f'<x id="{n}"/>', f'<ph id="{n}">%s</ph>',
                            f'<bpt id="{n}">&lt;b></bpt>{inner}<ept id="{n}">&lt;/b></ept>', "&amp; &lt;b&gt;"])  # fmt: skip

    return xliff_of(*(f"x {piece()}{piece()}" for _ in range(3))).encode(), "a.xlf"


def xliff_of(*sources: str) -> str:
    units = (
        f'<trans-unit id="{n}"><source>{source}</source></trans-unit>' for n, source in enumerate(sources)
    )
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"'
        f' target-language="de" datatype="plaintext"><body>{"".join(units)}</body></file></xliff>'
    )


def markdown(draw: random.Random) -> tuple[bytes, str]:
    parts = [
        *("{}", " *{}* ", "**{}**", "_{}_", "`{}`", "[{}](x)", "[{}](x 'T')", "![{}](y)", "[{}][r]", "<b>{}</b>"),
        *("\n", "\n\n", "  \n", "\\\n", "\n\n# {}\n\n", "\n\n* {}\n  {}\n\n", "\n\n1. {}\n2. {}\n\n   {}\n\n"),
        *("\n\n> {}\n> {}\n\n", "\n\n| {} | {} |\n|---|---|\n| {} | {} |\n\n", "\n\n```\n{}\n```\n\n", "~~{}~~", "\\*"),
        *("\n\n{}\n===\n\n", "\n\n- {}\n  - {}\n    - {}\n\n", "[^1]", "<http://x.y>", "&amp;", "\n\n<div>\n{}\n</div>\n\n"),
        *("\n\n- {}\n\n      code {}\n\n", "a{}*b*", "\n\n| {} \\| {} | `a|b` |\n|---|---|\n\n", " _{}_x ", "***{}***"),
    ]  # fmt: skip
    text = "".join(_filled(draw, draw.choice(parts)) for _ in range(draw.randint(1, 12)))
    return (text + "\n\n[r]: http://r\n\n[^1]: note\n").encode(), "a.md"


def text(draw: random.Random) -> tuple[bytes, str]:
    parts = "{}\n|{}. {}. {}.\n|\n|* {}\n|1. {}\n|> {}\n|    {}\t{}\n|-----\n|{}\r\n"
    return "".join(
        _filled(draw, draw.choice(parts.split("|"))) for _ in range(draw.randint(2, 9))
    ).encode(), "a.txt"


STRUCTURES: dict[str, Callable[[random.Random], tuple[bytes, str]]] = {
    "html": html, "docx": docx, "epub": epub, "pptx": pptx, "subtitles": subtitles,
    "po": po, "xliff": xliff, "markdown": markdown, "prose": text,
}  # fmt: skip
