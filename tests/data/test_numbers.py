"""Numbers in other notations are there; others are missing."""

from cotext.data.faults import missing_numbers
from tests.loops import loop_over


@loop_over(
    ("source", "target"),
    [
        ("It cost 1,000.5 euros.", "Es kostete 1.000,5 Euro."),
        ("It cost 1,000.5 euros.", "Il a coûté 1 000,5 euros."),
        ("It cost 1,234 francs.", "Es kostete 1’234 Franken."),
        ("1,500,000 people", "1,5 Millionen Menschen"),
        ("1,500,000 people", "150万人"),
        ("2.5 million people", "250万人"),
        ("50,000 people", "5万人"),
        ("10,00,000 rupees", "1,000,000 Rupien"),
        ("a price of 1.50", "ein Preis von 1,5"),
        ("on 11/24/2026", "am 24.11.2026"),
        ("2026-11-03", "3. November 2026"),
        ("at 09:05", "um 9.05 Uhr"),
        ("three of 7 dogs, 20 cats, 100 fish", "drei von sieben Hunden, zwanzig Katzen, hundert Fische"),
        ("in the 1990s", "in den 90er Jahren"),
        ("from 1990–95", "von 1990–1995"),
        ("in the 21st century", "au XXIe siècle"),
        ("in 1998", "一九九八年"),
        ("35 people", "三十五人"),
        ("في ٢٠٢٤", "in 2024"),
        ("in 2024", "２０２４年に"),
        ("in 2024 150 people", "2024 150 Personen"),
        ("007", "7"),
        ("no number", "keine Zahl"),
    ],
)
def test_numbers_in_other_notations_are_there(source: str, target: str) -> None:
    assert missing_numbers(source, target) == []


@loop_over(
    ("source", "target", "numbers"),
    [
        ("It cost 1,000.5 euros.", "Es kostete 1.000,6 Euro.", ["1,000.5"]),
        ("In 1998 it cost 45 %.", "1998 kostete es viel.", ["45"]),
        ("In 1998 it cost 45 %.", "Damals kostete es viel.", ["1998", "45"]),
        ("a price of 3.5", "ein Preis", ["3.5"]),
        ("5", "der", ["5"]),
        ("2026-11-03", "gestern", ["2026", "11", "03"]),
        ("chapter 35", "Kapitel 3", ["35"]),
        ("chapter 45", "Kapitel 450", ["45"]),
        ("٣٥ كلبا", "Hunde", ["٣٥"]),
    ],
)
def test_numbers_that_are_not_there(source: str, target: str, numbers: list[str]) -> None:
    assert missing_numbers(source, target) == numbers
