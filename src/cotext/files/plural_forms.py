"""Plural forms of languages as headers of PO catalogues state them: how many, and which number takes which.

The rules are those of the gettext manual (section "Plural forms").
"""

from typing import Final

_ONE = "nplurals=1; plural=0;"
_NOT_ONE = "nplurals=2; plural=(n != 1);"
_ABOVE_ONE = "nplurals=2; plural=(n > 1);"
_EAST_SLAVIC = (
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
)
_WEST_SLAVIC = "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);"

_RULES: Final = {
    _ONE: "ja ko vi zh th id ms",
    _NOT_ONE: "en de nl sv da no nb nn fo es pt it bg el fi et he eo hu ca eu gl af sq",
    _ABOVE_ONE: "fr tr",
    _EAST_SLAVIC: "ru uk be sr hr bs",
    _WEST_SLAVIC: "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "pl",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);": "lv",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);": "lt",
    "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);": "ro",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl",
}
PLURAL_FORMS: Final[dict[str, str]] = {code: rule for rule, codes in _RULES.items() for code in codes.split()}
