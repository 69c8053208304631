"""Spaces of networks: their hyperparameters and conditions are found, counted, and written down and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ConfigError
from dl4all.search.space import cardinality, probed
from tests.search.spaces import conditional, deep, flat, nested

SPACES = {"flat": flat, "conditional": conditional, "nested": nested, "deep": deep}
spaces = pytest.mark.parametrize("net", SPACES.values(), ids=SPACES)


@spaces
def test_sizes_are_what_enumeration_counts(net: Any) -> None:
    space = dl.search.Space(net)
    assert space.exact
    found = {space.to_json(values) for values in space.values()}
    assert space.size == len(found) == len(list(space.values()))
    assert {space.to_json(space.draw(seed)) for seed in range(20)} <= found


@spaces
def test_vectors_and_documents_give_the_values_back(net: Any) -> None:
    space = dl.search.Space(net)
    seen = set()
    for seed in range(40):
        values = space.draw(seed)
        vector = space.encode(values)
        assert vector.shape == (len(space.dimensions),)
        assert np.isfinite(vector).sum() == len(values)
        assert space.decode(vector) == values
        assert space.from_json(space.to_json(values)) == values
        seen.add(vector.tobytes())
    assert len(seen) > 5


def test_printed_conditions() -> None:
    assert str(dl.search.Space(conditional)).splitlines() == [
        "Space of 6 hyperparameters, 50 networks",
        "  kind           one of conv, linear",
        "  bias           one of False, True",
        "  kernel         one of 1, 3   if kind is conv",
        "  cells          integer 1 to 2   if kind is conv",
        "  cells.0.width  integer 2 to 8, step 3   if kind is conv",
        "  cells.1.width  integer 2 to 8, step 3   if cells is 2",
    ]


def test_floats_make_a_space_endless() -> None:
    def net(s: dl.search.Choices) -> float:
        return s.floating("lr", 1e-4, 1.0, log=True)

    space = dl.search.Space(net)
    assert space.size == math.inf
    drawn = [space.draw(seed)["lr"] for seed in range(200)]
    assert 1e-4 <= min(drawn) < 1e-3 < 0.1 < max(drawn) <= 1.0
    assert 0.3 < np.mean(np.log10(drawn) < -2) < 0.7  # even in the logarithm
    with pytest.raises(ArgumentError, match="the space is endless"):
        next(space.values())


def test_steps_of_floats_end_at_the_last() -> None:
    """Three times 0.1 is more than 0.3 in binary."""
    space = dl.search.Space(lambda s: s.floating("p", 0.0, 0.3, step=0.1))
    assert space.size == 4
    assert [values["p"] for values in space.values()] == [0.0, 0.1, 0.2, 0.3]
    drawn = {space.draw(seed)["p"] for seed in range(40)}
    assert drawn == {0.0, 0.1, 0.2, 0.3}


def test_other_conditions_make_an_estimate() -> None:
    def either(s: dl.search.Choices) -> None:
        first, second = s.choice("a", [0, 1, 2]), s.choice("b", [0, 1, 2])
        if first == 2 or second == 2:
            s.choice("c", [0, 1, 2, 3])

    def ranged(s: dl.search.Choices) -> None:
        s.integer("below", 1, s.integer("most", 1, 10))

    for net, size in ((either, 4 + 5 * 4), (ranged, 55)):
        space = dl.search.Space(net)
        assert not space.exact
        assert len(list(space.values())) == size
        assert space.size == pytest.approx(size, rel=0.1)
        assert "about" in str(space)


def test_a_name_has_one_value_and_blocks_their_own() -> None:
    def net(s: dl.search.Choices) -> list[Any]:
        width = s.integer("width", 1, 100)
        blocks = s.repeat("block", lambda s, number: (number, s.integer("width", 1, 100)), 3, 3)
        return [width, s.integer("width", 1, 100), *blocks, s.optional("more", lambda s: s.choice("x", "ab"))]

    space = dl.search.Space(net)
    given = {
        "width": 7,
        "block": 3,
        **{f"block.{n}.width": n + 1 for n in range(3)},
        "more": True,
        "more.x": "b",
    }
    assert space.build(given) == [7, 7, (0, 1), (1, 2), (2, 3), "b"]
    assert space.build({**{k: v for k, v in given.items() if k != "more.x"}, "more": False})[-1] is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bias": True}, "no value for kind"),
        ({"kind": "linear", "bias": True, "kernel": 1}, "'kernel' is no hyperparameter"),
        ({"kind": "gru", "bias": True}, "kind: 'gru' is not one of conv, linear"),
        ({"kind": "linear", "bias": 1}, "bias: 1 is not one of False, True"),
        ({"kind": "conv", "bias": True, "kernel": 1, "cells": 3}, "cells: 3 is not integer 1 to 2"),
        (
            {"kind": "conv", "bias": True, "kernel": 1, "cells": 1, "cells.0.width": 4},
            "4 is not integer 2 to 8",
        ),
        ({"kind": "conv", "bias": True, "kernel": 1, "cells": 1.0}, "cells: 1.0 is not"),
    ],
)
def test_values_that_no_network_has(values: dict[str, Any], message: str) -> None:
    space = dl.search.Space(conditional)
    for refused in (space.build, space.encode, space.to_json):
        with pytest.raises(ArgumentError, match=message):
            refused(values)


def test_vectors_and_documents_of_nothing() -> None:
    space = dl.search.Space(conditional)
    vector = space.encode(space.draw(0))
    with pytest.raises(ArgumentError, match="vector of 6 numbers"):
        space.decode(vector[1:])
    for wrong in (0.5, 2.0, -1.0):
        with pytest.raises(ArgumentError, match="no position"):
            space.decode([wrong, *vector[1:]])
    with pytest.raises(ArgumentError, match="no value for kind"):
        space.decode(np.full(6, np.nan))
    for text, message in (("{", "no JSON document"), ("[1]", "expected an object of values, got list")):
        with pytest.raises(ArgumentError, match=message):
            space.from_json(text)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (lambda s: s.integer("n", 3, 2), "n: "),
        (lambda s: s.integer("n", 1, 2.5), "expected integers"),
        (lambda s: s.integer("n", True, 2), "expected integers"),
        (lambda s: s.integer("n", 0, 8, log=True), "n: "),
        (lambda s: s.floating("p", 0.0, math.inf), "finite"),
        (lambda s: s.floating("p", 1.0, 0.0), "p: "),
        (lambda s: s.choice("c", []), "at least one"),
        (lambda s: s.choice("c", [1, 1]), "different options"),
        (lambda s: s.choice("c", [dl.nn.ReLU]), "dict of labels"),
        (lambda s: s.choice("", [1]), "needs a name"),
        (lambda s: s.repeat("r", lambda s: s.choice("c", []), 1, 2), r"r\.0\.c|at least one"),
        (lambda s: s.require(), "limits above 0"),
        (lambda s: s.require(parameters=0), "limits above 0"),
        (lambda s: s.require(flops=1.0), "inputs="),
    ],
)
def test_bad_hyperparameters(net: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dl.search.Space(net)


def test_fixed_values_do_not_belong_to_the_space() -> None:
    space = dl.search.Space(conditional, {"kind": "conv", "cells": 2})
    assert list(space.dimensions) == ["bias", "kernel", "cells.0.width", "cells.1.width"]
    assert (space.exact, space.size) == (True, 36)
    values = space.draw(0)
    assert values.keys() == space.dimensions.keys()
    assert [layer.out_channels for layer in space.build(values)] == [
        values[f"cells.{n}.width"] for n in (0, 1)
    ]
    with pytest.raises(ArgumentError, match="kind: 'gru' is not one of conv, linear"):
        dl.search.Space(conditional, {"kind": "gru"})
    study = dl.search.run(space, lambda model, trial: 1.0, devices=["cpu"], workers=2, trials=4)
    assert all(trial.params.keys() == space.dimensions.keys() for trial in study.trials)


def test_an_empty_space() -> None:
    with pytest.raises(ConfigError, match="the space is empty"):
        dl.search.Space(lambda s: dl.nn.Linear(1, 1))


def test_two_ranges_of_one_name_count_each() -> None:
    """A value that was drawn from one range must be in the other one, too."""

    def net(s: dl.search.Choices) -> tuple[int, int]:
        return s.integer("n", 1, 3), s.integer("n", 2, 9)

    with pytest.raises(ArgumentError, match="n: 1 is not integer 2 to 9"):
        dl.search.Space(net)


def test_probed_values_are_all_or_the_ends() -> None:
    found = {name: d.distribution for name, d in dl.search.Space(flat).dimensions.items()}
    assert [cardinality(found[name]) for name in found] == [len(probed(kind)) for kind in found.values()]
