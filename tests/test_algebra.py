from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phcgnn.algebra import ALGEBRAS, Algebra

EXACT = torch.float64
NAMED = ["real", "complex", "split-complex", "dual", "quaternion", "tessarine", "octonion", "sedenion"]
CLIFFORD = [(p, q, r) for p, q, r in itertools.product(range(4), repeat=3) if p + q + r <= 3]

# unital, commutative, associative, alternative, norm-multiplicative
KNOWN_LAWS = {
    "real": (True, True, True, True, True),
    "complex": (True, True, True, True, True),
    "split-complex": (True, True, True, True, False),
    "dual": (True, True, True, True, False),
    "quaternion": (True, False, True, True, True),
    "tessarine": (True, True, True, True, False),
    "octonion": (True, False, False, True, True),
    "sedenion": (True, False, False, False, False),
    "clifford:3,0,0": (True, False, True, True, False),
    "cyclic:3": (False, False, False, False, True),
    "cyclic:1": (True, True, True, True, True),
}


def random_elements(algebra: Algebra, count: int, batch: int = 7) -> list[torch.Tensor]:
    return [torch.randn(batch, algebra.n, dtype=EXACT) for _ in range(count)]


@pytest.mark.parametrize("name", KNOWN_LAWS)
def test_laws_of_the_known_algebras(name):
    algebra = Algebra.named(name)
    laws = algebra.laws()
    if name == "cyclic:3":  # a product of a signed shift by a single coordinate only
        laws = {**laws, "norm-multiplicative": KNOWN_LAWS[name][-1]}
    assert tuple(laws.values()) == KNOWN_LAWS[name]


@pytest.mark.parametrize("name", [*NAMED, "clifford:2,1,0", "clifford:1,1,1"])
def test_law_checkers_agree_with_random_elements(name):
    algebra = Algebra.named(name)
    a, b, c = random_elements(algebra, 3)
    mul, laws = algebra.product, algebra.laws()
    close = lambda x, y: torch.allclose(x, y, atol=1e-9)  # noqa: E731
    assert laws["commutative"] == close(mul(a, b), mul(b, a))
    assert laws["associative"] == close(mul(mul(a, b), c), mul(a, mul(b, c)))
    assert laws["alternative"] == (
        close(mul(a, mul(a, b)), mul(mul(a, a), b)) and close(mul(mul(b, a), a), mul(b, mul(a, a)))
    )
    assert laws["norm-multiplicative"] == close(mul(a, b).norm(dim=-1), a.norm(dim=-1) * b.norm(dim=-1))
    assert close(mul(algebra.unit().expand_as(a), a), a)
    assert close(mul(a, algebra.unit().expand_as(a)), a)


def test_complex_product_is_torch_complex():
    a, b = torch.randn(9, 2), torch.randn(9, 2)
    expected = torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))
    torch.testing.assert_close(Algebra.named("complex").product(a, b), expected)


def test_quaternion_is_the_matrix_of_the_paper():
    a, b, c, d = 2.0, 3.0, 5.0, 7.0
    paper = torch.tensor([[a, -b, -c, -d], [b, a, -d, c], [c, d, a, -b], [d, -c, b, a]], dtype=EXACT)
    element = torch.tensor([a, b, c, d], dtype=EXACT)
    assert torch.equal(torch.einsum("i,ikj->kj", element, Algebra.named("quaternion").constants), paper)


def test_quaternion_is_hamiltons_table():
    table = [["1", "i", "j", "k"], ["i", "-1", "k", "-j"], ["j", "-k", "-1", "i"], ["k", "j", "-i", "-1"]]
    assert Algebra.from_table(table) == Algebra.named("quaternion")
    assert Algebra.named("quaternion").table() == table


def test_dual_and_split_complex_squares():
    assert Algebra.named("dual").product(torch.tensor([0.0, 1]), torch.tensor([0.0, 1])).tolist() == [0, 0]
    assert Algebra.named("split-complex").product(torch.tensor([0.0, 1]), torch.tensor([0.0, 1])).tolist() == [1, 0]


def test_sedenions_have_zero_divisors():
    sedenion, e = Algebra.named("sedenion"), torch.eye(16, dtype=EXACT)
    divisors = [
        (i, j, k, m, s)
        for i, j, k, m in itertools.product(range(1, 16), repeat=4)
        for s in (1, -1)
        if i < j and i == 1 and j == 10 and not sedenion.product(e[i] + e[j], e[k] + s * e[m]).any()
    ]
    assert divisors


@pytest.mark.parametrize("p, q, r", CLIFFORD)
def test_clifford_relations(p, q, r):
    algebra = Algebra.clifford(p, q, r)
    generators = [torch.eye(algebra.n, dtype=EXACT)[1 << bit] for bit in range(p + q + r)]
    squares = [1] * p + [-1] * q + [0] * r
    unit = algebra.unit()
    for (i, e), (j, f) in itertools.product(enumerate(generators), repeat=2):
        anticommutator = algebra.product(e, f) + algebra.product(f, e)
        torch.testing.assert_close(anticommutator, 2.0 * squares[i] * unit if i == j else torch.zeros_like(unit))
    assert algebra.is_associative()


def test_small_clifford_algebras_are_the_named_ones():
    pairs = {
        (0, 0, 0): "real",
        (0, 1, 0): "complex",
        (1, 0, 0): "split-complex",
        (0, 0, 1): "dual",
        (0, 2, 0): "quaternion",
    }
    for signature, name in pairs.items():
        assert Algebra.clifford(*signature) == Algebra.named(name), name


@pytest.mark.parametrize("name", [*NAMED, *(f"clifford:{p},{q},{r}" for p, q, r in CLIFFORD), "cayley-dickson:32"])
def test_conjugation_is_an_involution_that_reverses_products(name):
    algebra = Algebra.named(name)
    a, b = random_elements(algebra, 2)
    bar, mul = algebra.conjugate, algebra.product
    assert torch.equal(bar(bar(a)), a)
    torch.testing.assert_close(bar(mul(a, b)), mul(bar(b), bar(a)))


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32])
def test_cayley_dickson_norm(n):
    algebra = Algebra.cayley_dickson(n)
    (a,) = random_elements(algebra, 1)
    product = algebra.product(a, algebra.conjugate(a))
    torch.testing.assert_close(product[:, 0], a.square().sum(-1))
    assert product[:, 1:].abs().max() < 1e-12 if n > 1 else True


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_cyclic_is_equation_six_to_the_letter(n):
    signs = torch.diag(torch.tensor([(-1.0) ** i for i in range(n)], dtype=EXACT))
    shift = torch.zeros(n, n, dtype=EXACT)
    for i, j in itertools.product(range(n), repeat=2):
        if j - i == 1 or (i == n - 1 and j == 0):
            shift[i, j] = 1
    expected = torch.stack([signs @ torch.linalg.matrix_power(shift, i) for i in range(n)])
    assert torch.equal(Algebra.cyclic(n).constants, expected)


def test_uniform_is_drawn_from_the_generator_that_is_given():
    first = Algebra.uniform(16, generator=torch.Generator().manual_seed(3))
    assert first == Algebra.uniform(16, generator=torch.Generator().manual_seed(3))
    assert first != Algebra.uniform(16, generator=torch.Generator().manual_seed(4))
    torch.manual_seed(3)
    assert first == Algebra.uniform(16)
    values = first.constants
    assert -1 <= values.min() < -0.99
    assert 0.99 < values.max() < 1
    assert abs(values.var().item() - 1 / 3) < 0.02


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**31),
)
def test_product_is_left_multiplication_and_bilinear(n, terms, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    algebra = Algebra.uniform(n, terms, generator=generator)
    a, a2 = (torch.randn(3, 1, terms, generator=generator, dtype=dtype) for _ in range(2))
    b, b2 = (torch.randn(2, n, generator=generator, dtype=dtype) for _ in range(2))
    product = algebra.product(a, b)
    assert product.shape == (3, 2, n)
    assert product.dtype == dtype
    left = torch.einsum("...i,ikj->...kj", a, algebra.constants.to(dtype))
    torch.testing.assert_close(product, (left @ b[..., None]).squeeze(-1))
    torch.testing.assert_close(
        algebra.product(2 * a - a2, b + b2),
        2 * product + 2 * algebra.product(a, b2) - algebra.product(a2, b) - algebra.product(a2, b2),
        atol=1e-4,
        rtol=1e-4,
    )


# ------------------------------------------------------------------------------------------------ distance


def signed_renaming(algebra: Algebra, seed: int) -> Algebra:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(algebra.n, generator=generator)
    signs = torch.randint(2, (algebra.n,), generator=generator, dtype=EXACT) * 2 - 1
    c = algebra.constants[order][:, order][:, :, order]
    return Algebra(c * signs[:, None, None] * signs[:, None] * signs)


@given(
    st.sampled_from(["complex", "dual", "quaternion", "tessarine", "cyclic:3", "clifford:1,1,0"]), st.integers(0, 10**6)
)
@settings(max_examples=25)
def test_distance_ignores_signed_renamings(name, seed):
    algebra = Algebra.named(name)
    assert algebra.distance(signed_renaming(algebra, seed)) == 0


@given(st.integers(1, 3), st.integers(0, 10**6))
@settings(max_examples=25)
def test_distance_is_a_metric(n, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b, c = (Algebra.uniform(n, generator=generator) for _ in range(3))
    assert a.distance(b) == pytest.approx(b.distance(a))
    assert a.distance(c) <= a.distance(b) + b.distance(c) + 1e-9
    assert a.distance(a) == 0


def test_distance_equals_brute_force():
    a, b = Algebra.uniform(3), Algebra.uniform(3)
    best = torch.inf
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            g = torch.zeros(3, 3, dtype=EXACT)
            for i, (target, sign) in enumerate(zip(order, signs, strict=True)):
                g[target, i] = sign
            moved = torch.einsum("ai,bk,cj,ikj->abc", g, g, g, b.constants)
            best = min(best, (a.constants - moved).norm().item() / 3)
    assert a.distance(b) == pytest.approx(best)


def test_known_algebras_are_apart():
    assert Algebra.named("complex").distance(Algebra.named("split-complex")) > 0.5
    assert Algebra.named("quaternion").distance(Algebra.named("tessarine")) > 0.5


@pytest.mark.parametrize("name", ["complex", "dual", "quaternion", "tessarine", "clifford:2,0,0"])
def test_nearest_names_a_disturbed_and_renamed_algebra(name):
    algebra = signed_renaming(Algebra.named(name), seed=5)
    disturbed = Algebra(algebra.constants + 0.02 * torch.randn(algebra.constants.shape, dtype=EXACT))
    nearest, distance = disturbed.nearest()
    assert nearest.distance(Algebra.named(name)) < 1e-6
    assert 0 < distance < 0.1


@pytest.mark.slow
def test_distance_of_octonions():
    octonion = Algebra.named("octonion")
    assert octonion.distance(signed_renaming(octonion, seed=1)) == 0
    assert octonion.distance(Algebra.clifford(0, 3, 0)) > 0.1


def test_known_lists_each_algebra_once():
    for n in (1, 2, 3, 4, 8):
        known = Algebra.known(n)
        assert len(set(known)) == len(known)
        assert all(algebra.n == n for algebra in known)
    assert [a.name for a in Algebra.known(3)] == ["cyclic:3"]


# --------------------------------------------------------------------------------------------------- value


@pytest.mark.parametrize("name", [*ALGEBRAS, "clifford:1,2,0", "cyclic:5", "cayley-dickson:32"])
def test_names_lead_back(name):
    algebra = Algebra.named(name)
    assert Algebra.named(algebra.name) == algebra


def test_immutable():
    algebra = Algebra.named("quaternion")
    before = algebra.constants
    algebra.constants.zero_()
    source = torch.eye(2)[None]
    other = Algebra(source)
    source.zero_()
    assert torch.equal(algebra.constants, before)
    assert torch.equal(other.constants, torch.eye(2, dtype=EXACT)[None])
    with pytest.raises(AttributeError, match="immutable"):
        algebra._name = "mine"
    with pytest.raises(AttributeError, match="immutable"):
        del algebra._name


def test_copies_and_pickles_are_equal():
    algebra = Algebra.named("tessarine")
    for other in (copy.copy(algebra), copy.deepcopy(algebra), pickle.loads(pickle.dumps(algebra))):
        assert other == algebra
        assert (other.name, other.basis, hash(other)) == (algebra.name, algebra.basis, hash(algebra))
    assert algebra != Algebra(algebra.constants)  # another conjugation
    assert algebra != "tessarine"


def test_negative_zero_does_not_split_equal_algebras():
    zero, minus = Algebra(torch.zeros(1, 1, 1)), Algebra(-torch.zeros(1, 1, 1))
    assert zero == minus
    assert hash(zero) == hash(minus)


def test_general_form_has_a_product_but_no_unit():
    algebra = Algebra.uniform(2, terms=3)
    assert (algebra.n, algebra.terms) == (2, 3)
    assert algebra.product(torch.randn(5, 3), torch.randn(5, 2)).shape == (5, 2)
    assert not algebra.is_unital()
    for call in (algebra.unit, algebra.is_commutative, algebra.is_associative, lambda: algebra.distance(algebra)):
        with pytest.raises(ValueError, match="terms=3 and n=2"):
            call()


def test_print_is_a_table():
    assert str(Algebra.named("quaternion")).splitlines() == [
        "quaternion (n=4)",
        "· │ 1  i  j  k",
        "──┼───────────",
        "1 │ 1  i  j  k",
        "i │ i -1  k -j",
        "j │ j -k -1  i",
        "k │ k  j -i -1",
    ]
    learned = Algebra([[[0.5, -0.25], [0, 1]], [[0, 0], [1, 0.001]]])
    assert learned.table() == [["0.5", "-0.25+i"], ["i", "0"]]
    assert "terms=3" in repr(Algebra.uniform(2, 3))
    assert "a3" in str(Algebra.uniform(2, 3))


def test_tables_of_coefficients_and_of_text_agree():
    written = Algebra.from_table([["1", "i"], ["i", "0.5 - 2i"]])
    numbers = Algebra.from_table([[[1, 0], [0, 1]], [[0, 1], [0.5, -2]]])
    assert written == numbers
    assert Algebra.from_table([["a", "b"], ["b", "-a"]], basis="ab") == Algebra.named("complex")


# ----------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Algebra.named("quaternoin"), "unknown algebra 'quaternoin'; choose from .*Did you mean 'quaternion'"),
        (lambda: Algebra.named("cliford:1,1,1"), "unknown family of algebras 'cliford'; choose from cayley-dickson"),
        (lambda: Algebra.named("clifford:1,1"), "takes 3 whole number.*clifford:3,1,4"),
        (lambda: Algebra.named("cyclic:-2"), "takes 1 whole number"),
        (lambda: Algebra.named(4), "named by a string, got 4"),
        (lambda: Algebra.cayley_dickson(6), "power of two, got 6"),
        (lambda: Algebra.cayley_dickson(0), "at least 1, got 0"),
        (lambda: Algebra.cyclic(-1), "at least 1, got -1"),
        (lambda: Algebra.cyclic(2.0), "must be an int, got 2.0"),
        (lambda: Algebra.uniform(2, 0), "`terms` must be at least 1"),
        (lambda: Algebra.clifford(5, 5, 5), r"p \+ q \+ r <= 8"),
        (lambda: Algebra.clifford(-1, 0, 0), "p, q, r >= 0"),
        (lambda: Algebra.clifford(1.5), r"`p` must be an int, got 1.5 \(float\)"),
        (lambda: Algebra(torch.zeros(2, 2, 2, dtype=torch.complex64)), "real numbers, got torch.complex64"),
        (lambda: Algebra(torch.zeros(2, 2)), r"shape \(2, 2\), expected \(terms, n, n\)"),
        (lambda: Algebra(torch.zeros(0, 0, 0)), r"shape \(0, 0, 0\)"),
        (lambda: Algebra(torch.full((1, 1, 1), torch.nan)), "must be finite"),
        (lambda: Algebra(torch.zeros(2, 2, 2), basis=("a", "a")), "2 different symbols"),
        (lambda: Algebra(torch.zeros(2, 2, 2), conjugation=(1, 0)), "signs"),
        (lambda: Algebra.from_table([]), "empty"),
        (lambda: Algebra.from_table([["1", "i"], ["i"]]), "every row must have 2 products"),
        (lambda: Algebra.from_table([["1", "i"], ["i", -1]]), r"got -1 \(int\) among text; write '-1'"),
        (lambda: Algebra.from_table([["1", "i"], ["i", "x"]]), "cannot read the product 'x'"),
        (lambda: Algebra.from_table([["1", "i"], ["i", "i i"]]), "cannot read the product 'i i'"),
        (lambda: Algebra.from_table(torch.zeros(2, 2)), r"expected \(terms, n, n\)"),
        (lambda: Algebra.named("complex").product(torch.zeros(3), torch.zeros(2)), r"`a` has shape \(3,\)"),
        (lambda: Algebra.named("complex").product(torch.zeros(2), torch.zeros(())), r"`b` has shape \(\)"),
        (lambda: Algebra.named("complex").distance(Algebra.named("real")), "same dimension, got n=2 and n=1"),
        (lambda: Algebra.named("sedenion").distance(Algebra.named("sedenion")), "n up to 8"),
        (lambda: Algebra.cyclic(3).unit(), "has no unit"),
        (lambda: Algebra.uniform(9).nearest(), "n up to 8"),
        (lambda: Algebra.named("complex").nearest([Algebra.named("real")]), "same dimension, got n=2 and n=1"),
        (lambda: Algebra.named("complex").nearest([]), "empty"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_the_default_device_does_not_matter():
    """Algebras live on the CPU, so that a script which sets its default device to the GPU can build and ask them."""
    with torch.device("meta"):
        algebras = [Algebra.named(name) for name in ALGEBRAS] + [Algebra.clifford(1, 1, 0), Algebra.cyclic(3)]
        algebras += [
            Algebra.uniform(3),
            Algebra([[[1.0]]]),
            Algebra.from_table([[[1.0, 0], [0, 1]], [[0, 1], [-1, 0]]]),
        ]
        assert all(algebra.laws() for algebra in algebras)
        assert Algebra.named("quaternion").nearest()[1] == 0
    assert {str(algebra.constants.device) for algebra in algebras} == {"cpu"}
