"""The store of results: keys, claims, files."""

import itertools
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from ppopt.pipeline import Costs, Memory, Pipeline
from ppopt.study import sweep as sweep_module
from ppopt.study.plan import Instance, Task, canonical, study_of
from ppopt.study.store import Store, StoreError
from tests.support.study import TREE, contents


def test_the_key_is_that_of_the_problem_not_of_its_words() -> None:
    a = Pipeline(2, 4, costs=Costs(forward=2), name="a")
    b = Pipeline(2, 4, costs=Costs(forward=(2.0, 2.0)), name="b")
    other = Pipeline(2, 4, costs=Costs(forward=(2, 1)))
    assert canonical(a) == canonical(b) != canonical(other)
    keys = [Instance((), Task("1f1b"), pipeline).key for pipeline in (a, b, other)]
    assert keys[0] == keys[1] != keys[2]
    assert Instance((), Task("zb-h1"), a).key != keys[0]
    loop = a.placed("loop", 2)  # a named schedule has its own placement: where the model has its stages does not matter
    assert Instance((), Task("1f1b"), loop).key == keys[0]
    assert Instance((), Task(settings=(("seed", 0),)), loop).key != Instance((), Task(settings=(("seed", 0),)), a).key


def test_the_key_does_not_confuse_numbers_that_a_double_cannot_tell_apart() -> None:
    costs = (Costs(forward=Fraction(10**17)), Costs(forward=Fraction(10**17 + 1)))
    with_limit = [Pipeline(1, 1, costs=Costs(forward=1), memory=Memory(static=c.forward)) for c in costs]
    assert canonical(with_limit[0]) != canonical(with_limit[1])


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(StoreError, match="is not a file of sweep results"):
        Store(tmp_path / "other.db")
    with pytest.raises(StoreError, match="there is no such file"):
        Store(tmp_path / "none.db", create=False)


def test_many_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    """Whoever comes first creates it; the others wait, and find a store."""
    barrier = threading.Barrier(6)

    def opens(path: Path) -> None:
        barrier.wait()
        with Store(path) as store:
            store.add(f"result {threading.get_ident()}", {}, {}, "done", {}, 0.0)

    with ThreadPoolExecutor(6) as pool:
        for k in range(10):
            path = tmp_path / f"{k}.db"
            list(pool.map(opens, [path] * 6))
            with sqlite3.connect(path) as connection:
                assert connection.execute("SELECT count(*) FROM results").fetchone() == (6,)
            connection.close()


def test_claims(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        assert store.claim("a")
        assert store.claim("a"), "one's own claim is no obstacle"
        connection = sqlite3.connect(path)
        connection.execute("UPDATE claims SET pid = 1")  # a process that is alive
        connection.commit()
        assert not store.claim("a")
        connection.execute("UPDATE claims SET alive = 0")
        connection.commit()
        assert store.claim("a"), "long silent"
        connection.execute("UPDATE claims SET pid = 4194303")
        connection.commit()
        connection.close()
        assert store.claim("a"), "its process is gone"
        store.add("a", {}, {}, "done", {}, 0.0)
        assert not store.claim("a"), "finished"
        assert contents(path)


def test_every_pair_of_results_has_its_own_key() -> None:
    study = study_of({**TREE, "run": {"schedules": "all"}}, "s.toml")
    for a, b in itertools.pairwise(study.instances):
        assert a.key != b.key
    assert sweep_module.QUEUED >= 1
