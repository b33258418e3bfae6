"""The shortlist table of a folder that is being prepared: `cotext prepare --shortlist`."""

from dataclasses import asdict
from typing import Any

from cotext.data.corpora import OnDocuments
from cotext.data.preparation import Preparation
from cotext.data.prepared import TRAIN
from cotext.data.shortlist import SHORTLIST, coverages, learned_shortlist
from cotext.data.store import TokenStore
from cotext.data.tokenizer import load_tokenizer


def build_shortlist(work: Preparation, on_documents: OnDocuments) -> dict[str, Any]:
    """Make the table of the training corpus, which is encoded, unless that is done; gives what lists lose.

    By how many candidates of a source token they have; `Coverage` as in JSON.
    """
    noted = work.done("shortlist")
    if noted is None:
        on_documents("making the shortlist", 0)
        tokenizer = load_tokenizer(work.folder / "tokenizer")
        made = learned_shortlist(TokenStore(work.folder / TRAIN), tokenizer)
        made.save(work.folder / SHORTLIST)
        found = coverages(made, TokenStore(work.folder / "dev.arrow"), tokenizer)
        noted = {str(count): asdict(each) for count, each in found.items()}
        work.note("shortlist", [work.folder / SHORTLIST], noted)
    return dict(noted)
