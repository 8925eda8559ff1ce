from __future__ import annotations

import pytest

from phcgnn.registry import Registry


def test_registers_and_lists_in_order():
    registry: Registry[int] = Registry("number")
    registry.register("two")(2)
    registry.register("one")(1)
    assert (list(registry), len(registry), registry["two"], "one" in registry) == (["one", "two"], 2, 2, True)
    assert repr(registry) == "Registry('number': one, two)"


def test_errors_name_the_choices():
    registry: Registry[int] = Registry("number")
    registry.register("three")(3)
    with pytest.raises(ValueError, match=r"unknown number 'thre'; choose from three. Did you mean 'three'\?"):
        registry["thre"]
    with pytest.raises(ValueError, match=r"unknown number 'xyz'; choose from three\.$"):
        registry["xyz"]
    with pytest.raises(ValueError, match="'three' is registered already"):
        registry.register("three")(4)
    with pytest.raises(TypeError, match="a number is named by a string, got 3"):
        registry[3]
    with pytest.raises(TypeError, match="an algebra is named by a string"):
        Registry("algebra")[3]
