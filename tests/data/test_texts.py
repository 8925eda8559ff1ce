from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phcgnn.data.texts import Texts


@given(st.lists(st.text()))
def test_gives_back_what_it_was_given(texts):
    packed = Texts.pack(texts)
    assert list(packed) == texts
    assert [packed[i - len(texts)] for i in range(len(texts))] == texts
    assert list(packed[::-2]) == texts[::-2]
    assert packed == Texts.pack(texts)
    assert packed != Texts.pack([*texts, "more"])


def test_select_repeats_and_reorders():
    assert list(Texts.pack(["a", "", "ccc"]).select(torch.tensor([2, 0, 2, 1]))) == ["ccc", "a", "ccc", ""]


def test_bad_input():
    texts = Texts.pack(["a"])
    assert "1 texts" in repr(texts)
    assert texts.__eq__("a") is NotImplemented
    for index in (1, -2):
        with pytest.raises(IndexError, match="out of range, there are 1"):
            texts[index]
    with pytest.raises(TypeError, match="entry 1 must be a str, got None"):
        Texts.pack(["a", None])
    with pytest.raises(ValueError, match=r"entry 0, '\\ud800', cannot be written as UTF-8"):
        Texts.pack(["\ud800"])
