"""Full stops that a translation has and its source has not."""

from cotext.files.translate_blocks import without_added_stop
from tests.loops import loop_over


@loop_over(
    ("source", "target", "expected"),
    [
        ("The winters were cold", "Die Winter waren kalt.", "Die Winter waren kalt"),
        ("Rooms 12", "Zimmer zwölf .", "Zimmer zwölf"),
        ("冷たい", "冬は寒い。", "冬は寒い"),
        ("The winters were cold.", "Die Winter waren kalt.", None),
        ("Cold?", "Kalt.", None),
        ("Total (net)", "Gesamt.", None),
        ("Wait", "Warte...", None),
        ("Cold", "Kalt!", None),
        ("apples, pears etc", "Äpfel, Birnen usw.", None),
        ("for example", "z.B.", None),
        ("the fifth", "am 5.", None),
        ("Louis the fourteenth", "Ludwig XIV.", None),
        ("Plan", "Plan B.", None),
        ("cold", ".", None),
        ("cold", "", None),
        ("", "Kalt.", None),
    ],
)
def test_what_is_added_goes(source: str, target: str, expected: str | None) -> None:
    assert without_added_stop(source, target, "de") == (target if expected is None else expected)
