"""Draw small changes of code at random, and report the share that the tests find: the mutation score.

    .venv/bin/python -m tests.mutants 400            # the number of changes; an hour
    .venv/bin/python -m tests.mutants 40 --seed 2    # others

Changed are comparisons, operators, numbers, conditions and calls whose result is not used, in the modules of
`TESTS_OF`, each place with the same probability. Messages of errors are not changed. The score is a lower
bound: some changes have no effect that a user could see.
"""

import argparse
import ast
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt
from pathlib import Path

import pytest

from tests.faults import FINDS, SOURCE, run_tests

_SEARCH = "search translation/test_unscored_search.py translation/test_translator.py"
_JOBS = "runtime/test_job_engine.py translation/test_translate_file.py cli/test_commands_in_shards.py"
# Test files and folders by module, the most likely to fail first.
TESTS_OF = {
    "search/beam_search.py": f"{_SEARCH} test_equivalence.py translation/test_substitution.py",
    "search/hypotheses.py": f"{_SEARCH} translation/test_sentence_lists.py",
    "search/constraints.py": f"{_SEARCH} test_equivalence.py",
    "data/alignment.py": "data/test_document_alignment.py evaluation/test_audit.py",
    "evaluation/statistics/significance.py": "evaluation/test_significance.py evaluation/test_evidence.py "
    "evaluation/test_evaluate_files.py evaluation/test_leaderboard.py evaluation/test_compare_seeds.py",
    "runtime/jobs/engine.py": _JOBS,
    "runtime/jobs/journal.py": _JOBS,
}
_PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.Add, ast.Sub), (ast.And, ast.Or)),
]
_OPPOSITES = dict(_PAIRS) | {other: one for one, other in _PAIRS}
_OPPOSITES |= {ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
Change = Callable[[], None]


def _set(node: ast.AST, field: str, value: object) -> Change:
    return partial(setattr, node, field, value)


def changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of a tree, each a function that carries it out in place."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _OPPOSITES:
        yield _set(node, "op", _OPPOSITES[type(node.op)]())
    elif isinstance(node, ast.Compare):
        yield _set(node, "ops", [_OPPOSITES[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _set(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _set(node, "value", node.value + 1)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield _set(node, "value", ast.Constant(None))
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.Raise):
                    yield from changes(child)


def main(count: int, seed: int) -> None:
    """Print each change that no test finds, and the score with its interval of 95 % (Wilson)."""
    texts = {name: (SOURCE / "cotext" / name).read_text(encoding="utf-8") for name in TESTS_OF}
    places = [(name, n) for name, text in texts.items() for n, _ in enumerate(changes(ast.parse(text)))]
    found = 0
    drawn = random.Random(seed).sample(places, count)
    for number, (name, n) in enumerate(drawn, 1):
        tree = ast.parse(texts[name])
        before = ast.unparse(tree)
        list(changes(tree))[n]()
        after = ast.unparse(ast.fix_missing_locations(tree))
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            shutil.copytree(SOURCE, copy, dirs_exist_ok=True)
            (copy / "cotext" / name).write_text(after, encoding="utf-8")
            code = run_tests(copy, TESTS_OF[name].split())
        if code in FINDS or code < 0:
            found += 1
            continue
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"the tests of {name} did not run: exit code {code}")
        old, new = next(
            (old, new)
            for old, new in zip(before.splitlines(), after.splitlines(), strict=False)
            if old != new
        )
        print(f"{number:3} {name}: {old.strip()}  ->  {new.strip()}", flush=True)
    share, z = found / count, 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    print(f"{found} of {count} found: {share:.1%}, 95 % from {middle - half:.1%} to {middle + half:.1%}")
    print(f"places: {len(places):,}, seed {seed}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    main(given.count, given.seed)
