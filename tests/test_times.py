from collections import Counter

from tests.times import dearest


def test_what_tests_cost_is_summed_over_parameters_and_files() -> None:
    spent = Counter(
        {
            "tests/a.py::test_one[x-1]": 0.25,
            "tests/a.py::test_one[a::b]": 0.5,
            "tests/a.py::TestKind::test_two": 0.125,
            "tests/b.py::test_one": 0.8,
        }
    )
    assert dearest(spent, 0) == [("tests/a.py", 0.875, 3), ("tests/b.py", 0.8, 1)]
    assert dearest(spent, 1) == [
        ("tests/b.py::test_one", 0.8, 1),
        ("tests/a.py::test_one", 0.75, 2),
        ("tests/a.py::TestKind::test_two", 0.125, 1),
    ]
