"""Engines made on first use: a run that translates on a CPU is converted for CTranslate2 once.

    RUN/engines/NAME/                        an engine folder (`models/run_folder.py`)
    $XDG_CACHE_HOME/cotext/engines/NAME/     if the run cannot be written, or belongs to a package or the hub

NAME contains the checksum of the weights and everything else that an engine depends on. So new weights, or
another version of CTranslate2, never use an old engine. A lock makes other processes wait for the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cotext.config.parts import trusting
from cotext.interchange.export import (
    further_parts,
    has_exact_int8,
    installed,
    obstacles,
    positions_for,
    write_engine,
)
from cotext.interchange.model_names import CHECKSUMS, resolve_run
from cotext.models.checkpoint import load_run
from cotext.models.interface import Engine
from cotext.models.run_folder import CTRANSLATE2, FORMAT, INSTALL, is_engine, model_file, read_shapes
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import NAME, checksum, discard, remove, replacing, require_free, standard_folder
from cotext.runtime.progress import say
from cotext.search.engine import load_engine
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translator import Translator

ENGINES: Final = "engines"
LOCK: Final = ".lock"
LOCK_SECONDS: Final = 600.0  # longest time to wait for a conversion by another process
KEPT: Final = 3  # number of engines of other weights that a folder keeps: the newest
# An engine has the precision of the settings; bfloat16 has no equivalent on every CPU.
QUANTIZATIONS: Final = ("float32", "int8")
# Settings that engines support only with these values.
PLAIN: Final = {
    "align": "constrained",
    "nbest": 1,
    "shortlist": 0,
    "scores": True,
    "first_pass": "",
    "sampling": None,
    "language_model": "",
}
# Smaller models translate a page before CTranslate2 is imported and the run is converted.
LEAST_PARAMETERS: Final = 2_000_000


def open_to_translate(
    run: str | Path,
    device: str | None = None,
    decode: dict[str, Any] | None = None,
    update: int | None = None,
    threads: int | None = None,
    without: str = "",
) -> OpenedRun:
    """Open a run like `open_run`, with the engine of `decode.engine`, made now if there is none.

    `run`: also the name of a model. `without`: an option of the caller that needs PyTorch; empty: none.

    Raises CotextError: `decode.engine = ctranslate2` is not possible; errors of `resolve_run` and `open_run`.
    """
    run = resolve_run(run)
    if is_engine(run):
        return open_run(run, device, decode, update, threads)
    before = _state(model_file(run, update))
    opened = open_run(run, device, decode, update, threads, converts=True)
    wanted = opened.config.decode.engine
    if wanted == "torch":
        return opened.with_engine(None)
    reason = without or next(_objections(opened), "")
    # Engines were faster in all measurements only with single sentences and large enough models.
    is_large = opened.loaded.parameters >= LEAST_PARAMETERS
    is_faster = is_large and opened.config.view.kind == "sentence"
    if wanted == "auto" and (reason or not is_faster or _is_in_training(run)):
        return opened.with_engine(None)
    if reason:
        raise CotextError(f"decode.engine = ctranslate2 is not possible with {reason}; set engine=auto")
    try:
        engine = _cached(opened, update, threads, before)
    except CotextError as error:
        if wanted == "ctranslate2":
            raise
        say(f"{run}: uses PyTorch instead of CTranslate2 (--set engine=torch hides this message): {error}")
        engine = None
    return opened.with_engine(engine)


def load(
    run: str | Path, device: str | None = None, *, trust_code: bool = False, **decode: Any
) -> Translator:
    """Open a run folder, an engine or a model by its name: see `cotext.load`."""
    with trusting(trust_code):
        opened = open_to_translate(run, device, decode)
    return Translator(opened.translator, opened.signature)


def _objections(opened: OpenedRun) -> Iterator[str]:
    """Yield the properties of this machine, a run and its settings that engines do not support."""
    decode, device = opened.config.decode, opened.translator.device
    if not installed():
        yield f"this installation, which has no CTranslate2 ({INSTALL})"
    if device.type != "cpu":
        yield f"the device {device}, only with cpu"
    if decode.precision not in QUANTIZATIONS:
        yield f"decode.precision = {decode.precision}"
    if decode.precision == "int8" and not has_exact_int8():
        yield "decode.precision = int8 on this processor, whose int8 products are not exact"
    yield from (
        f"decode.{key} = {getattr(decode, key)}" for key in PLAIN if getattr(decode, key) != PLAIN[key]
    )
    yield from obstacles(opened.config)
    yield from further_parts(opened.config, read_shapes(opened.weights))


def _is_in_training(run: Path) -> bool:
    """Return whether a process is working in a run, so that its weights will soon change."""
    try:
        require_free(run / NAME, str(run))
    except (CotextError, OSError):
        return True
    return False


def _state(path: Path) -> tuple[int, ...]:
    """Return numbers that change if a file is replaced."""
    if not path.exists():
        return ()
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _cached(opened: OpenedRun, update: int | None, threads: int | None, state: tuple[int, ...]) -> Engine:
    """Load the engine of an opened run; make it if it is missing or damaged.

    Raises CotextError: it cannot be made or written, or the file of the weights has changed since `state`.
    """
    quantization = opened.config.decode.precision
    versions = f"{CTRANSLATE2}-{version(CTRANSLATE2)}-cotext-{__version__}-{FORMAT}"
    weights, positions = checksum(opened.weights)[:16], positions_for(opened.config)
    name = f"{weights}-{quantization}-{positions}-{versions}"

    def require_same_weights() -> None:
        if _state(opened.weights) != state:
            raise CotextError("another process has just replaced the weights; run the command again")

    def make(folder: Path) -> None:
        say(f"{opened.folder}: is converted for CTranslate2, once, to {folder}")
        # The model of `opened` may be in int8.
        loaded = load_run(opened.folder, update) if quantization != "float32" else opened.loaded
        require_same_weights()
        with replacing(folder) as temporary:
            write_engine(replace(loaded, config=opened.config), quantization, temporary, {})

    def load(folder: Path) -> Engine:
        model = load_engine(folder, opened.translator.device, threads).model
        assert isinstance(model, Engine)
        return model

    require_same_weights()
    problems = []
    for place in _places(opened.folder):
        folder = place / name
        try:
            with _locked(place):
                if folder.is_dir():
                    with suppress(CotextError):
                        return load(folder)
                    discard(folder)  # damaged
                _prune(place, weights)
                make(folder)
                return load(folder)
        except (OSError, CotextError, ImportError) as error:  # ImportError: a broken installation
            # Another user may have made the engine in a folder that this user cannot write.
            if isinstance(error, OSError) and folder.is_dir():
                with suppress(CotextError):  # damaged
                    return load(folder)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            problems.append(str(error) if isinstance(error, CotextError) else f"{place}: {reason}")
    raise CotextError("; ".join(problems))


def _places(run: Path) -> list[Path]:
    """Return folders for engines, to try in order: in the run (if it is no named model), in the cache."""
    own = [] if (run / CHECKSUMS).exists() else [run / ENGINES]
    return [*own, standard_folder("XDG_CACHE_HOME", ".cache") / ENGINES]


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Create a folder of engines and wait for its lock; raise OSError if it cannot be written."""
    from filelock import FileLock

    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / LOCK, timeout=LOCK_SECONDS):
        yield


def _prune(place: Path, weights: str) -> None:
    """Delete the remains of killed processes, and all but `KEPT` engines of other weights."""
    others = [path for path in place.iterdir() if not path.name.startswith((weights, "."))]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    unfinished = (path for path in place.glob(".?*") if path.name != LOCK)
    for path in (*others[KEPT:], *unfinished):
        remove(path)
