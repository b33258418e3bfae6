"""The corpus of a training run: prepared data as one configuration cuts and samples it."""

from dataclasses import dataclass

from cotext.config.recipe import Config
from cotext.config.training import TrainConfig
from cotext.data.batch import SpecialSymbols
from cotext.data.build import build_mixture, build_view, special_symbols
from cotext.data.prepared import checked_digests
from cotext.data.sampling import Arrangement, Sampler
from cotext.data.store import TokenStore
from cotext.data.tokenizer import chosen_languages
from cotext.data.views import Mixture, View
from cotext.training.prepared_data import PreparedData


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and development data of a run, with the views that cut them."""

    train: TokenStore
    dev: TokenStore
    view: View  # of validation and translation
    mixture: Mixture  # of training
    symbols: SpecialSymbols
    unknown: int  # what hidden words become
    max_row_tokens: int
    checksums: dict[str, str]  # of the files that it was read from, of the tokenizer and languages

    def sampler(self, train: TrainConfig, max_tokens: int, shard: int = 0, shards: int = 1) -> Sampler:
        """The training batches of one process out of `shards`, each of at most `max_tokens`."""
        return Sampler(
            self.train,
            self.mixture,
            self.symbols,
            max_tokens=max_tokens,
            max_row_tokens=self.max_row_tokens,
            pool_tokens=train.pool_tokens,
            seed=train.seed,
            shard=shard,
            shards=shards,
            arrangement=Arrangement(train.order, train.context),
        )


def corpus_of(config: Config, data: PreparedData) -> Corpus:
    """The corpus of a configuration, from prepared data.

    Raises:
        CotextError: a file is not what the report of the prepared folder says.
    """
    checksums = {**checked_digests(data.folder, data.files_read), "tokenizer": data.tokenizer.fingerprint}
    if languages := chosen_languages(data.tokenizer):
        checksums["choice of languages"] = languages
    return Corpus(
        train=data.train,
        dev=data.dev,
        view=build_view(config.view),
        mixture=build_mixture(config.view),
        symbols=special_symbols(data.tokenizer, config.view),
        unknown=data.tokenizer.unk,
        max_row_tokens=config.view.max_tokens,
        checksums=checksums,
    )
