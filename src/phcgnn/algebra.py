r"""Multiplication tables of finite-dimensional real algebras, and their laws.

An algebra with basis :math:`e_1, \dots, e_n` is a bilinear product, and a bilinear product is a stack of matrices:
:math:`(\mathbf{C}_i)_{kj}` is the coefficient of :math:`e_k` in :math:`e_i e_j`, so that
:math:`\sum_i a_i \mathbf{C}_i` is the matrix of left multiplication by :math:`a`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from phcgnn.errors import ShapeError, require_integer, require_positive
from phcgnn.registry import Registry

__all__ = ["ALGEBRAS", "LAWS", "Algebra"]

ALGEBRAS: Registry[Callable[[], Algebra]] = Registry("algebra")
"""The algebras that have a name of their own; :meth:`Algebra.named` also understands the families."""

LAWS = ("unital", "commutative", "associative", "alternative", "norm-multiplicative")

_DISTANCE_LIMIT = 8  # 8! permutations x 2^8 signs take about a second; 9 would take minutes
_CLIFFORD_LIMIT = 8  # 256 dimensions: the table takes 128 MB


class Algebra:
    r"""An immutable multiplication rule: ``terms`` matrices of shape ``n x n``.

    .. math:: (a \cdot b)_k = \sum_{i,j} a_i\, (\mathbf{C}_i)_{kj}\, b_j

    Two algebras are equal if their constants and their conjugation are; the name is a label. With ``terms != n`` the
    left factor has ``terms`` components (the paper's n, where ``n`` is its m) and there is a product but no unit.

    Args:
        constants: :math:`\mathbf{C}_1, \dots, \mathbf{C}_{terms}`, shape ``(terms, n, n)``.
        name: A label for people.
        basis: One symbol a basis element, for tables. (default: ``1, i, j, k`` up to four, then ``e0, e1, ...``)
        conjugation: One sign a basis element. (default: the first is kept and all others change sign)

    >>> Algebra.named("quaternion").product(torch.tensor([0.0, 1, 0, 0]), torch.tensor([0.0, 0, 1, 0]))
    tensor([0., 0., 0., 1.])
    """

    __slots__ = ("_basis", "_constants", "_name", "_signs")

    _basis: tuple[str, ...]
    _constants: Tensor
    _name: str
    _signs: tuple[int, ...]

    def __init__(
        self,
        constants: Tensor | Sequence[Any],
        *,
        name: str = "custom",
        basis: Sequence[str] | None = None,
        conjugation: Sequence[int] | None = None,
    ) -> None:
        given = torch.as_tensor(constants, device="cpu").detach()
        if given.is_complex():
            raise TypeError(f"Algebra: `constants` must be real numbers, got {given.dtype}; pass constants.real.")
        matrices = given.to(torch.float64, copy=True)
        if matrices.dim() != 3 or matrices.shape[1] != matrices.shape[2] or 0 in matrices.shape:
            raise ShapeError("Algebra: `constants`", got=matrices.shape, expected=("terms", "n", "n"))
        if not matrices.isfinite().all():
            raise ValueError("Algebra: `constants` must be finite, got NaN or infinity.")
        n = matrices.shape[1]
        signs = (1, *(-1,) * (n - 1)) if conjugation is None else tuple(conjugation)
        if len(signs) != n or not set(signs) <= {1, -1}:
            raise ValueError(f"Algebra: `conjugation` must be {n} signs, each 1 or -1, got {signs}.")
        labels = _default_basis(n) if basis is None else tuple(basis)
        if len(labels) != n or len(set(labels)) != n:
            raise ValueError(f"Algebra: `basis` must be {n} different symbols, got {labels}.")
        for slot, value in (("_basis", labels), ("_constants", matrices), ("_name", name), ("_signs", signs)):
            object.__setattr__(self, slot, value)

    # ------------------------------------------------------------------------------------------- construction

    @staticmethod
    def named(name: str) -> Algebra:
        """Return the algebra of that name.

        Besides the names in :data:`ALGEBRAS` the families are understood: ``cayley-dickson:32``, ``clifford:3,0,1``,
        ``cyclic:6``. ``Algebra.named(a.name) == a`` for every algebra that these make.

        >>> Algebra.named("clifford:0,2,0") == Algebra.named("quaternion")
        True
        """
        family, colon, arguments = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not colon or family not in _FAMILIES:
            if colon:
                raise ValueError(f"unknown family of algebras '{family}'; choose from {', '.join(_FAMILIES)}.")
            return ALGEBRAS[name]()
        build, arity = _FAMILIES[family]
        if not re.fullmatch(rf"\d+(,\d+){{{arity - 1}}}", arguments):
            example = f"{family}:{','.join('314'[:arity])}"
            raise ValueError(f"'{name}': '{family}' takes {arity} whole number(s), as in '{example}'.")
        return build(*(int(argument) for argument in arguments.split(",")))

    @staticmethod
    def cayley_dickson(n: int) -> Algebra:
        r"""Return the n-dimensional Cayley-Dickson algebra: real, complex, quaternion, octonion, sedenion, ...

        Doubling by :math:`(a, b)(c, d) = (ac - \bar{d}b,\; da + b\bar{c})`.
        """
        require_positive("Algebra.cayley_dickson", n=n)
        if n & (n - 1):
            raise ValueError(f"Algebra.cayley_dickson: `n` must be a power of two, got {n}.")
        table = torch.ones(1, 1, 1, dtype=torch.float64, device="cpu")  # table[i, k, j]: coefficient of e_k in e_i e_j
        while (m := len(table)) < n:
            bar = -torch.ones(m, dtype=torch.float64, device="cpu")
            bar[0] = 1
            flipped = table.permute(2, 1, 0)  # flipped[i, k, j]: coefficient of e_k in e_j e_i
            doubled = table.new_zeros(2 * m, 2 * m, 2 * m)
            doubled[:m, :m, :m] = table  # a c
            doubled[m:, :m, m:] = -flipped * bar  # -conj(d) b
            doubled[:m, m:, m:] = flipped  # d a
            doubled[m:, m:, :m] = table * bar  # b conj(c)
            table = doubled
        return Algebra(table, name=_CAYLEY_DICKSON_NAMES.get(n, f"cayley-dickson:{n}"))

    @staticmethod
    def clifford(p: int, q: int = 0, r: int = 0) -> Algebra:
        """Return the Clifford algebra whose generators square to +1 (p of them), -1 (q) and 0 (r).

        The ``2**(p+q+r)`` blades are ordered by the binary number of the generators in them (1, e1, e2, e12, e3, ...);
        ``conjugate`` is Clifford conjugation.
        """
        require_integer("Algebra.clifford", p=p, q=q, r=r)
        squares = [1] * p + [-1] * q + [0] * r
        if min(p, q, r) < 0 or len(squares) > _CLIFFORD_LIMIT:
            raise ValueError(
                f"Algebra.clifford: needs p, q, r >= 0 and p + q + r <= {_CLIFFORD_LIMIT}, got {p}, {q}, {r}."
            )
        n = 2 ** len(squares)
        constants = torch.zeros(n, n, n, dtype=torch.float64, device="cpu")
        for a, b in itertools.product(range(n), repeat=2):
            swaps = sum((a >> shift & b).bit_count() for shift in range(1, len(squares) + 1))
            coefficient = (-1) ** swaps
            for bit, square in enumerate(squares):
                if a & b & 1 << bit:
                    coefficient *= square
            constants[a, a ^ b, b] = coefficient
        generators = [[str(bit + 1) for bit in range(len(squares)) if blade & 1 << bit] for blade in range(n)]
        basis = ["e" + "".join(g) if g else "1" for g in generators]
        conjugation = [(-1) ** (len(g) * (len(g) + 1) // 2) for g in generators]
        return Algebra(constants, name=f"clifford:{p},{q},{r}", basis=basis, conjugation=conjugation)

    @staticmethod
    def cyclic(n: int) -> Algebra:
        r"""Return the paper's start, Eq. (6): :math:`\mathbf{C}_i = \tilde{\mathbf{I}}_n \mathbf{P}_n^{i-1}`.

        :math:`\tilde{\mathbf{I}}_n = \mathrm{diag}(1, -1, 1, \dots)` and :math:`\mathbf{P}_n` is the cyclic shift with
        ones at :math:`j - i = 1` and at :math:`(n, 1)`. It is neither unital nor associative for n > 1.
        """
        require_positive("Algebra.cyclic", n=n)
        signs = torch.ones(n, dtype=torch.float64, device="cpu")
        signs[1::2] = -1
        identity = _eye(n)
        return Algebra(
            torch.stack([signs.diag() @ identity.roll(power, dims=1) for power in range(n)]), name=f"cyclic:{n}"
        )

    @staticmethod
    def uniform(n: int, terms: int | None = None, *, generator: torch.Generator | None = None) -> Algebra:
        r"""Return the paper's dense start, Eq. (7): every entry drawn from :math:`U(-1, 1)`.

        Args:
            n: Dimension.
            terms: Number of matrices. (default: ``n``)
            generator: Source of the numbers. (default: torch's own, so that :func:`torch.manual_seed` fixes them)
        """
        terms = n if terms is None else terms
        require_positive("Algebra.uniform", n=n, terms=terms)
        constants = torch.rand(terms, n, n, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
        return Algebra(constants, name=f"uniform:{n}" if terms == n else f"uniform:{n},{terms}")

    @staticmethod
    def from_table(
        table: Tensor | Sequence[Sequence[Any]],
        *,
        name: str = "custom",
        basis: Sequence[str] | None = None,
        conjugation: Sequence[int] | None = None,
    ) -> Algebra:
        """Return the algebra of a multiplication table: ``table[i][j]`` is the product of basis elements i and j.

        Args:
            table: Products, either as sums of basis symbols (``"-k"``, ``"0"``, ``"i - 0.5j"``) or as n coefficients
                each (shape ``(terms, n, n)``, last axis the coefficient; *not* the layout of ``constants``).
            name: A label for people.
            basis: The symbols that the products are written in; needed for written products whose symbols are not
                the default ones.
            conjugation: As in the constructor.

        >>> print(Algebra.from_table([["1", "i"], ["i", "-1"]], name="mine"))
        mine (n=2)
        · │ 1  i
        ──┼─────
        1 │ 1  i
        i │ i -1
        >>> Algebra.from_table([["1", "i"], ["i", "-1"]]) == Algebra.named("complex")
        True
        """
        if isinstance(table, Tensor) or not _is_written(table):
            coefficients = torch.as_tensor(table, dtype=torch.float64, device="cpu")
            if coefficients.dim() != 3 or coefficients.shape[1] != coefficients.shape[2]:
                raise ShapeError("Algebra.from_table: `table`", got=coefficients.shape, expected=("terms", "n", "n"))
        else:
            n = len(table[0])
            if any(len(row) != n for row in table):
                raise ValueError(f"Algebra.from_table: every row must have {n} products, as the first has.")
            symbols = _default_basis(n) if basis is None else tuple(basis)
            numbers = [[_coefficients(product, symbols) for product in row] for row in table]
            coefficients = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        return Algebra(coefficients.transpose(1, 2), name=name, basis=basis, conjugation=conjugation)

    @staticmethod
    def known(n: int) -> list[Algebra]:
        """Return the algebras of dimension n that have a name: named ones, then Clifford algebras, then the cyclic.

        >>> [a.name for a in Algebra.known(2)]
        ['complex', 'dual', 'split-complex', 'cyclic:2']
        """
        require_positive("Algebra.known", n=n)
        candidates = [algebra for name in ALGEBRAS if (algebra := Algebra.named(name)).n == n]
        generators = n.bit_length() - 1
        if n == 2**generators and generators <= _CLIFFORD_LIMIT:
            candidates += [
                Algebra.clifford(p, q, generators - p - q)
                for p in range(generators + 1)
                for q in range(generators - p + 1)
            ]
        candidates.append(Algebra.cyclic(n))
        return list(dict.fromkeys(candidates))

    # --------------------------------------------------------------------------------------------------- value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Algebra is immutable; make another one instead of setting `{name}`.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an Algebra is immutable; `{name}` cannot be deleted.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._constants, self._name, self._basis, self._signs)

    def __copy__(self) -> Algebra:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Algebra:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Algebra):
            return NotImplemented
        return self._signs == other._signs and torch.equal(self._constants, other._constants)

    def __hash__(self) -> int:
        return hash((self._signs, tuple((self._constants + 0.0).flatten().tolist())))

    @property
    def n(self) -> int:
        """Dimension: the number of components of an element."""
        return self._constants.shape[1]

    @property
    def terms(self) -> int:
        """Number of matrices; equal to :attr:`n` for an algebra in the strict sense."""
        return self._constants.shape[0]

    @property
    def name(self) -> str:
        """The label."""
        return self._name

    @property
    def basis(self) -> tuple[str, ...]:
        """One symbol a basis element."""
        return self._basis

    @property
    def constants(self) -> Tensor:
        """A fresh copy of the matrices, shape ``(terms, n, n)``, float64."""
        return self._constants.clone()

    # --------------------------------------------------------------------------------------------- arithmetic

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        r"""Multiply elementwise over any batch dimensions.

        Shapes:
            - **a:** :math:`(*, terms)`
            - **b:** :math:`(*, n)`
            - **output:** :math:`(*, n)`, the batch dimensions broadcast
        """
        self._require_components("a", a, self.terms)
        self._require_components("b", b, self.n)
        dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.get_default_dtype())
        constants = self._constants.to(a.device, dtype)
        return torch.einsum("...i,ikj,...j->...k", a.to(dtype), constants, b.to(dtype))

    def conjugate(self, a: Tensor) -> Tensor:
        r"""Change the sign of the imaginary components, :math:`(*, n)` to :math:`(*, n)`.

        For all named algebras this is an involution with :math:`\overline{ab} = \bar{b}\bar{a}`.
        """
        self._require_components("a", a, self.n)
        return a * torch.tensor(self._signs, dtype=a.dtype, device=a.device)

    def unit(self, tolerance: float = 1e-9) -> Tensor:
        """Return the two-sided unit, shape ``(n,)``; :class:`ValueError` where there is none."""
        self._require_square("unit")
        if not self.is_unital(tolerance):
            raise ValueError(f"{self.name} has no unit within a tolerance of {tolerance}; ask `is_unital` first.")
        return self._unit_candidate()

    # --------------------------------------------------------------------------------------------------- laws

    def is_unital(self, tolerance: float = 1e-9) -> bool:
        """Whether some e has e·a = a·e = a."""
        if self.terms != self.n:
            return False
        unit, identity = self._unit_candidate(), _eye(self.n)
        left = torch.einsum("i,ikj->kj", unit, self._constants)
        right = torch.einsum("ikj,j->ki", self._constants, unit)
        return _vanishes(torch.stack([left - identity, right - identity]), tolerance)

    def is_commutative(self, tolerance: float = 1e-9) -> bool:
        """Whether a·b = b·a."""
        self._require_square("is_commutative")
        return _vanishes(self._constants - self._constants.permute(2, 1, 0), tolerance)

    def is_associative(self, tolerance: float = 1e-9) -> bool:
        """Whether (a·b)·c = a·(b·c)."""
        self._require_square("is_associative")
        return all(_vanishes(self._associator(i), tolerance) for i in range(self.n))

    def is_alternative(self, tolerance: float = 1e-9) -> bool:
        """Whether a·(a·b) = (a·a)·b and (b·a)·a = b·(a·a)."""
        self._require_square("is_alternative")
        for i in range(self.n):
            associator = self._associator(i)
            left, right = associator + self._associator(i, second=True), associator + associator.transpose(0, 1)
            if not (_vanishes(left, tolerance) and _vanishes(right, tolerance)):
                return False
        return True

    def is_norm_multiplicative(self, tolerance: float = 1e-9) -> bool:
        """Whether |a·b| = |a| |b| for the Euclidean norm."""
        c, identity = self._constants, _eye(self.n)
        for i in range(self.terms):  # one element at a time: all at once would take n^4 numbers
            gram = torch.einsum("kj,pkq->jpq", c[i], c)
            gram = gram + gram.transpose(0, 2)
            gram[:, i] -= 2 * identity
            if not _vanishes(gram, tolerance):
                return False
        return True

    def laws(self, tolerance: float = 1e-9) -> dict[str, bool]:
        """Return every law of :data:`LAWS` with whether it holds, each within ``tolerance`` of its defining identity.

        >>> Algebra.named("octonion").laws()["associative"], Algebra.named("octonion").laws()["alternative"]
        (False, True)
        """
        return {law: getattr(self, "is_" + law.replace("-", "_"))(tolerance) for law in LAWS}

    # ----------------------------------------------------------------------------------------------- distance

    def distance(self, other: Algebra) -> float:
        r"""Return how far two algebras are apart, up to a signed permutation of the basis.

        .. math:: d(A, B) = \min_g \frac{1}{n} \lVert A - g B \rVert_F

        the root mean square error of a product of two basis elements under the best renaming
        :math:`e_i \mapsto \pm e_{\pi(i)}`: exact, over all :math:`2^n n!` of them, for n up to 8. Zero means the same
        algebra; it is a metric on the classes of algebras that such a renaming identifies.
        """
        self._require_comparable(other)
        return self._distance(other)

    def _distance(self, other: Algebra, best: float = math.inf) -> float:
        """Return the distance, or some number above ``best`` where it is above that.

        A permutation can at best bring all products to agree in sign; the permutations are tried in the order of what
        that would give, until it gives less than what was found. A change of all signs changes that of every product.
        """
        mine, theirs, n = self._constants, other._constants, self.n
        signs = mine.new_tensor([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=n - 1)])  # (2^n / 2, n)
        triples = torch.einsum("si,sk,sj->ikjs", signs, signs, signs).flatten(0, 2)  # (n^3, 2^n / 2)
        permutations = torch.tensor(list(itertools.permutations(range(n))), device="cpu")
        squares = (mine.square().sum() + theirs.square().sum()).item()
        bounds = torch.cat(
            [_renamed(theirs.abs(), p).flatten(1) @ mine.abs().flatten() for p in permutations.split(8192)]
        )
        bounds, order = bounds.sort(descending=True)
        least, found = (squares - (n * best) ** 2) / 2, (0, 0, 1.0)
        for start in range(0, len(order), 256):
            if bounds[start].item() < least:
                break
            chunk = order[start : start + 256]
            overlap = (_renamed(theirs, permutations[chunk]) * mine).flatten(1) @ triples
            at = int(overlap.abs().argmax())
            value = overlap.flatten()[at].item()
            if abs(value) > least:
                least = abs(value)
                found = (int(chunk[at // len(signs)]), at % len(signs), 1.0 if value > 0 else -1.0)
        permutation, sign, overall = found
        image = _renamed(theirs, permutations[permutation : permutation + 1])[0] * triples[:, sign].view_as(mine)
        return torch.linalg.vector_norm(mine - overall * image).item() / n

    def nearest(self, candidates: Sequence[Algebra] | None = None) -> tuple[Algebra, float]:
        """Return the closest of the candidates and its :meth:`distance`.

        Args:
            candidates: Algebras of the same dimension. (default: ``Algebra.known(n)``)

        >>> nudged = Algebra(Algebra.named("dual").constants + 0.01)
        >>> nudged.nearest()[0].name
        'dual'
        """
        self._require_comparable(self)  # before the candidates are made, which may be large
        pool = Algebra.known(self.n) if candidates is None else list(candidates)
        if not pool:
            raise ValueError("nearest: `candidates` is empty.")
        nearest, least = pool[0], self.distance(pool[0])
        for candidate in pool[1:]:
            self._require_comparable(candidate)
            if least > 0 and (distance := self._distance(candidate, least)) < least:
                nearest, least = candidate, distance
        return nearest, least

    # --------------------------------------------------------------------------------------------------- text

    def table(self, digits: int = 2) -> list[list[str]]:
        """Return the multiplication table as text: row i, column j holds the product of basis elements i and j."""
        columns = self._constants.transpose(1, 2)
        return [[_written(product.tolist(), self._basis, digits) for product in row] for row in columns]

    def __repr__(self) -> str:
        terms = "" if self.terms == self.n else f", terms={self.terms}"
        return f"Algebra({self.name}, n={self.n}{terms})"

    def __str__(self) -> str:
        rows = self._basis if self.terms == self.n else tuple(f"a{i + 1}" for i in range(self.terms))
        cells = [["·", *self._basis], *([row, *line] for row, line in zip(rows, self.table(), strict=True))]
        widths = [max(len(line[column]) for line in cells) for column in range(self.n + 1)]
        lines = [
            line[0].rjust(widths[0]) + " │ " + " ".join(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
            for line in cells
        ]
        rule = "─" * (widths[0] + 1) + "┼" + "─" * (sum(widths[1:]) + self.n)
        terms = "" if self.terms == self.n else f", terms={self.terms}"
        return "\n".join([f"{self.name} (n={self.n}{terms})", lines[0], rule, *lines[1:]])

    # ------------------------------------------------------------------------------------------------ private

    def _require_square(self, what: str) -> None:
        if self.terms != self.n:
            raise ValueError(f"{what}: needs as many matrices as dimensions, got terms={self.terms} and n={self.n}.")

    def _require_comparable(self, other: Algebra) -> None:
        self._require_square("distance")
        other._require_square("distance")
        if self.n != other.n:
            raise ValueError(f"distance: both algebras need the same dimension, got n={self.n} and n={other.n}.")
        if self.n > _DISTANCE_LIMIT:
            raise ValueError(
                f"distance: only for n up to {_DISTANCE_LIMIT} (it tries all 2^n n! renamings), got {self.n}."
            )

    def _require_components(self, name: str, value: Tensor, size: int) -> None:
        if value.dim() == 0 or value.shape[-1] != size:
            raise ShapeError(f"{self.name}: `{name}`", got=value.shape, expected=("*", size))

    def _unit_candidate(self) -> Tensor:
        n = self.n
        left = self._constants.permute(1, 2, 0).reshape(n * n, n)
        right = self._constants.permute(1, 0, 2).reshape(n * n, n)
        identity = _eye(n).reshape(n * n, 1)
        system, target = torch.cat([left, right]), torch.cat([identity, identity])
        return torch.linalg.lstsq(system, target, driver="gelsd").solution[:, 0]

    def _associator(self, i: int, *, second: bool = False) -> Tensor:
        """Return the coefficients of (e_i e_j) e_k - e_i (e_j e_k) by j, k, m; or with e_i and e_j exchanged."""
        c = self._constants
        if second:
            return torch.einsum("jl,lmk->jkm", c[:, :, i], c) - torch.einsum("lk,jml->jkm", c[i], c)
        return torch.einsum("lj,lmk->jkm", c[i], c) - torch.einsum("jlk,ml->jkm", c, c[i])


def _renamed(constants: Tensor, permutations: Tensor) -> Tensor:  # (n, n, n), (p, n) -> (p, n, n, n)
    """Permute the basis in each of the given ways."""
    i, k, j = permutations[:, :, None, None], permutations[:, None, :, None], permutations[:, None, None, :]
    return constants[i, k, j]


def _eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64, device="cpu")


def _vanishes(tensor: Tensor, tolerance: float) -> bool:
    return bool(tensor.abs().max() <= tolerance)


def _rebuild(constants: Tensor, name: str, basis: tuple[str, ...], signs: tuple[int, ...]) -> Algebra:
    return Algebra(constants, name=name, basis=basis, conjugation=signs)


def _default_basis(n: int) -> tuple[str, ...]:
    return ("1", "i", "j", "k")[:n] if n <= 4 else tuple(f"e{i}" for i in range(n))


def _is_written(table: Sequence[Sequence[Any]]) -> bool:
    if not table or not table[0]:
        raise ValueError("Algebra.from_table: `table` is empty.")
    return isinstance(table[0][0], str)


def _coefficients(product: str, basis: tuple[str, ...]) -> list[float]:
    """Read a sum such as ``-k`` or ``0.5i - j`` in the given symbols."""
    if not isinstance(product, str):
        raise TypeError(
            f"Algebra.from_table: the products must all be text or all be lists of coefficients, got {product!r} "
            f"({type(product).__name__}) among text; write '{product}'."
        )
    values = [0.0] * len(basis)
    text = product.replace(" ", "").replace("\N{MINUS SIGN}", "-")
    if text == "0":
        return values
    symbols = "|".join(sorted((re.escape(symbol) for symbol in basis if symbol != "1"), key=len, reverse=True))
    term = rf"([+-]?)(\d+\.?\d*|\.\d+)?\*?({symbols or '(?!)'})?"
    position = 0
    for match in re.finditer(term, text):
        sign, number, symbol = match.groups()
        missing = (not number and not symbol) or (not symbol and "1" not in basis)
        if match.start() != position or missing or (position and not sign):
            break
        values[basis.index(symbol or "1")] += float(number or 1) * (-1 if sign == "-" else 1)
        position = match.end()
    if position != len(text) or not text:
        raise ValueError(
            f"Algebra.from_table: cannot read the product {product!r}; "
            f"write a sum of {', '.join(basis)}, as in '-{basis[-1]}'."
        )
    return values


def _written(coefficients: list[float], basis: tuple[str, ...], digits: int) -> str:
    """Write a sum of basis elements, leaving out what rounds to zero."""
    parts: list[str] = []
    for value, symbol in zip(coefficients, basis, strict=True):
        rounded = round(abs(value), digits)
        if rounded == 0:
            continue
        number = "" if rounded == 1 else f"{rounded:.{digits}f}".rstrip("0").rstrip(".")
        text = number if number and symbol == "1" else number + symbol
        parts.append(("-" if value < 0 else "+") + text)
    return "".join(parts).removeprefix("+") or "0"


_CAYLEY_DICKSON_NAMES = {1: "real", 2: "complex", 4: "quaternion", 8: "octonion", 16: "sedenion"}
_FAMILIES: dict[str, tuple[Callable[..., Algebra], int]] = {
    "cayley-dickson": (Algebra.cayley_dickson, 1),
    "clifford": (Algebra.clifford, 3),
    "cyclic": (Algebra.cyclic, 1),
}


def _name_the_cayley_dickson_algebras() -> None:
    for n, name in _CAYLEY_DICKSON_NAMES.items():
        ALGEBRAS.register(name)(lambda n=n: Algebra.cayley_dickson(n))  # type: ignore[misc]


_name_the_cayley_dickson_algebras()


@ALGEBRAS.register("split-complex")
def _split_complex() -> Algebra:
    return Algebra.from_table([["1", "j"], ["j", "1"]], name="split-complex", basis=("1", "j"))


@ALGEBRAS.register("dual")
def _dual() -> Algebra:
    return Algebra.from_table([["1", "ε"], ["ε", "0"]], name="dual", basis=("1", "ε"))


@ALGEBRAS.register("tessarine")
def _tessarine() -> Algebra:
    """Two commuting imaginary units: i² = -1, j² = 1, k = ij. Conjugation changes i and k, and so keeps j = -ik."""
    table = [
        ["1", "i", "j", "k"],
        ["i", "-1", "k", "-j"],
        ["j", "k", "1", "i"],
        ["k", "-j", "i", "-1"],
    ]
    return Algebra.from_table(table, name="tessarine", conjugation=(1, -1, 1, -1))


ALGEBRAS.register("bicomplex")(ALGEBRAS["tessarine"])
