"""Links by site in a model file."""

import pytest

from ppopt.files.model import ModelError, model_of, model_of_text
from ppopt.files.model_tree import model_dict

SITES = """
[pipeline]
devices = 4
microbatches = 6
[links]
blocking = true
sites = [[0, 2], [1, 3]]
intra = { latency = 0.5 }
inter = { latency = 2, occupancy = 3, shared = true }
"""


def test_sites_are_tables_by_device() -> None:
    model = model_of_text(SITES, "sites")
    links = model.pipeline.links
    assert isinstance(links.latency, tuple)
    assert [float(x) for x in links.latency[0]] == [0, 2, 0.5, 2]
    assert [float(x) for x in links.occupancy[1]] == [3, 0, 3, 0]  # type: ignore[index]
    assert links.shared == (((0, 1), (0, 3), (2, 1), (2, 3)), ((1, 0), (1, 2), (3, 0), (3, 2)))
    assert links.blocking
    assert model_of(model_dict(model), "again").pipeline == model.pipeline


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, 3]]", "[1]]", r"links\.sites: device 3 is at no site"),
        ("[1, 3]]", "[1, 3, 0]]", r"links\.sites\[1\]\[2\]: device 0 is at site 0 already"),
        ("[1, 3]]", "[1, 4]]", r"links\.sites\[1\]\[1\]: expected a device 0\.\.3, got 4"),
        ("sites =", "latency = 1\nsites =", r"links\.latency: give either this or links\.sites"),
        ("shared = true", "shared = 1", r"links\.inter\.shared: expected true or false"),
        ("latency = 0.5", "latncy = 0.5", r"links\.intra\.latncy: unknown key"),
        ("latency = 0.5", "latency = [1]", r"links\.intra\.latency: expected a number"),
        ("inter = {", "intra2 = {", r"links\.intra2: unknown key"),
        ("sites = [[0, 2], [1, 3]]", "", r"links\.sites: missing"),
        ("sites = [[0, 2], [1, 3]]", "sites = 2", r"links\.sites: expected a list of sites"),
    ],
)
def test_sites_that_cannot_be(old: str, new: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model_of_text(SITES.replace(old, new), "sites")
