r"""Moments of the Gram matrix of random unit keys, exactly, at finite size (theorem 11).

For ``n`` keys uniform on :math:`S^{d-1}` let :math:`G_{ij} = k_i \cdot k_j`. A signal that meets the *same* keys in
every layer is multiplied by powers of :math:`G`, so its error needs :math:`\mathbb{E}(G^m)_{jj}`. As ``n`` and ``d``
grow with :math:`a = n/d` fixed, these tend to the moments of Marchenko and Pastur. At finite size:

* **One head.** Zonal polynomials. With :math:`k = g/\lVert g \rVert`, a key is a Gaussian vector :math:`g\sqrt t` whose
  "squared scale" has the formal moments :math:`\mathbb{E}t^m = 1/(d(d+2)\cdots(d+2m-2))`. Zonal polynomials
  :math:`J_\kappa` average over the Gaussian in closed form, branch over the keys one at a time, and only the
  :math:`O(m^3)` shapes :math:`\kappa = (a, b, 1, \dots, 1)` enter a power sum. All in exact rationals.
* **Several heads, whose Gram matrices are averaged.** A sum over closed walks. A key visited once on a walk is
  integrated out, :math:`\mathbb{E}[(a\cdot k)(k\cdot b)] = (a\cdot b)/d`; what remains is a small multigraph. The
  number of walks grows like the Bell numbers, so this serves a few layers.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

Shape = tuple[int, ...]
Edge = tuple[int, int]
Groups = tuple[tuple[Edge, ...], ...]


def marchenko_pastur(power: int, ratio: float) -> float:
    r"""The limit of :math:`\mathbb{E}(G^m)_{jj}` as ``n`` and ``d`` grow at a fixed ratio ``a = n/d`` (theorem 11).

    .. math:: M_m(a) = \sum_{k=1}^m \frac1m\binom mk\binom m{k-1} a^{k-1}, \qquad M_0 = 1

    Source: :cite:t:`marchenko1967distribution`; the coefficients are Narayana numbers.
    """
    if power == 0:
        return 1.0
    return sum(math.comb(power, k) * math.comb(power, k - 1) // power * ratio ** (k - 1) for k in range(1, power + 1))


# One head: zonal polynomials, that is Jack polynomials of parameter 2


def gram_moment(n: int, d: int, power: int) -> Fraction:
    r""":math:`\mathbb{E}(G^m)_{jj}` for ``n`` keys uniform on :math:`S^{d-1}`, exactly (theorem 11).

    .. math:: \mathbb{E}(G^2)_{jj} = 1 + \frac{n-1}{d}, \qquad
              \mathbb{E}(G^3)_{jj} = 1 + 3\,\frac{n-1}{d} + \frac{(n-1)(n-2)}{d^2}, \qquad \dots

    Args:
        n: keys.
        d: their dimension.
        power: the exponent ``m``, zero or more. Time grows like its fifth power or so, whatever ``n`` and ``d``.
    """
    if power == 0:
        return Fraction(1)
    # The trace is a polynomial in n of degree `power`, which Newton's forward differences at 0 continue.
    return sum(math.comb(n, k) * step for k, step in enumerate(_trace_differences(d, power))) / n


@cache
def _trace_differences(d: int, power: int) -> list[Fraction]:
    traces = [_trace(level, d, power) for level in _zonal_means(d, power)]
    differences = []
    while traces:
        differences.append(traces[0])
        traces = [b - a for a, b in itertools.pairwise(traces)]
    return differences


def _trace(means: dict[Shape, Fraction], d: int, power: int) -> Fraction:
    r""":math:`\mathbb{E}\operatorname{tr} G^m`: the power sum in zonal polynomials, each at its mean."""
    return sum(_power_sum_coefficient(k) * _at_identity(k, d) * means[k] for k in _shapes(power) if sum(k) == power)


@cache
def _zonal_means(d: int, power: int) -> list[dict[Shape, Fraction]]:
    r"""The formal mean of :math:`J_\kappa(t_1, \dots, t_n)` for n = 0, …, ``power``: one more variable each time."""
    scale = [Fraction(1, math.prod(range(d, d + 2 * m, 2))) for m in range(power + 1)]  # E t^m
    levels = [{shape: Fraction(not shape) for shape in _shapes(power)}]
    for _ in range(power):
        last = levels[-1]
        levels.append(
            {
                shape: sum(
                    (c * scale[sum(shape) - sum(inner)] * last[inner] for inner, c in _branches(shape)), Fraction(0)
                )
                for shape in _shapes(power)
            }
        )
    return levels


@cache
def _shapes(power: int) -> list[Shape]:
    """Partitions (a, b, 1, …, 1) of every number up to ``power``: no others enter a power sum."""
    shapes = {()}
    for a in range(1, power + 1):
        for b in range(min(a, power - a) + 1):
            for ones in range((power - a - b if b else 0) + 1):
                shapes.add((a, *((b,) if b else ()), *(1,) * ones))
    return sorted(shapes)


@cache
def _columns(shape: Shape) -> list[int]:
    return [sum(row > j for row in shape) for j in range(shape[0])] if shape else []


@cache
def _boxes(shape: Shape) -> list[tuple[int, int]]:
    return [(i, j) for i, row in enumerate(shape) for j in range(row)]


@cache
def _hooks(shape: Shape, i: int, j: int) -> tuple[int, int]:
    """The upper and the lower hook length of a box, for the Jack parameter 2."""
    arm, leg = shape[i] - j - 1, _columns(shape)[j] - i - 1
    return leg + 2 * (arm + 1), leg + 1 + 2 * arm


def _at_identity(shape: Shape, d: int) -> int:
    r""":math:`J_\kappa(1^d)`, which is also what the Gaussian average contributes."""
    return math.prod(d + 2 * j - i for i, j in _boxes(shape))


@cache
def _power_sum_coefficient(shape: Shape) -> Fraction:
    r"""The coefficient of :math:`J_\kappa` in the power sum :math:`p_m`."""
    contents = math.prod(2 * j - i for i, j in _boxes(shape) if (i, j) != (0, 0))
    return Fraction(2 * sum(shape) * contents, math.prod(math.prod(_hooks(shape, i, j)) for i, j in _boxes(shape)))


@cache
def _branches(shape: Shape) -> list[tuple[Shape, Fraction]]:
    r"""How :math:`J_\kappa` splits when its last variable is set apart: the inner shapes with their coefficients."""
    inner_shapes = [()]
    for row, below in zip(shape, (*shape[1:], 0), strict=False):
        inner_shapes = [(*inner, size) for inner in inner_shapes for size in range(below, row + 1)]
    return [(inner, _branching(shape, inner)) for inner in (tuple(r for r in s if r) for s in inner_shapes)]


def _branching(shape: Shape, inner: Shape) -> Fraction:
    columns, inner_columns = _columns(shape), _columns(inner)
    inner_columns += [0] * (len(columns) - len(inner_columns))

    def product(of: Shape) -> int:
        return math.prod(_hooks(of, i, j)[columns[j] != inner_columns[j]] for i, j in _boxes(of))

    return Fraction(product(shape), product(inner))


# Several heads: closed walks


def walk_moment(n: int, d: int, heads: int, steps: int, chords: tuple[Edge, ...] = ()) -> float:
    r"""The mean of a product of averaged overlaps along closed walks of so many steps (theorem 11).

    .. math:: \mathbb{E}\,(\bar E_1 \bar E_2 \cdots \bar E_m)_{jj}, \qquad
              \bar E = \frac1R \sum_{r=1}^R (G_r - I)

    Every step uses the same ``heads`` Gram matrices. A chord (s, t) makes steps s and t use one and the same head,
    averaged over the heads.

    Args:
        n, d: keys in a head, and their dimension.
        heads: R, the number of heads.
        steps: m. The work grows like the Bell number of m: a fraction of a second up to eight.
        chords: pairs of steps that share their head.
    """
    if steps == 0:
        return 1.0
    width = heads * d
    return sum(
        count * math.perm(n - 1, visited - 1) * width**-across * d**-within * _mean_overlap_product(groups, d, heads)
        for (visited, across, within, groups), count in _walks(steps, chords).items()
        if visited <= n
    )


@cache
def _walks(steps: int, chords: tuple[Edge, ...]) -> Counter:
    """Closed walks that never stay, up to relabelling of the keys they visit, each reduced; with multiplicity."""
    head = list(range(steps))
    for s, t in chords:
        head[t] = head[s]
    found = Counter()
    for walk in _closed_walks([0], 1, steps):
        edges = [(walk[i], walk[(i + 1) % steps], head[i]) for i in range(steps)]
        found[max(walk) + 1, *_reduced(edges)] += 1
    return found


def _closed_walks(walk: list[int], visited: int, steps: int) -> Iterator[list[int]]:
    if len(walk) == steps:
        if walk[-1] != walk[0]:
            yield walk
        return
    for key in range(visited + 1):
        if key != walk[-1]:
            yield from _closed_walks([*walk, key], max(visited, key + 1), steps)


def _reduced(edges: list[tuple[int, int, int]]) -> tuple[int, int, Groups]:
    """Integrate out every key that only two edges meet.

    The two edges become one, at the cost of 1/d if they belonged to one head already (``within``), and of 1/(Rd) if
    that forces two heads to be the same (``across``).
    """
    across = within = 0
    while True:
        edges = [edge for edge in edges if edge[0] != edge[1]]  # a key's overlap with itself is one
        degree = Counter(key for edge in edges for key in edge[:2])
        single = next((key for key in degree if degree[key] == 2), None)
        if single is None:
            return across, within, _grouped(edges)
        (a, b, head), (p, q, other) = (edge for edge in edges if single in edge[:2])
        rest = [(u, v, head if h == other else h) for u, v, h in edges if single not in (u, v)]
        edges = [*rest, (a + b - single, p + q - single, head)]
        within, across = (within + 1, across) if head == other else (within, across + 1)


def _grouped(edges: list[tuple[int, int, int]]) -> Groups:
    """The edges by head, keys renumbered in order of appearance."""
    number = {}
    groups = {}
    for a, b, head in edges:
        a, b = sorted((number.setdefault(a, len(number)), number.setdefault(b, len(number))))
        groups.setdefault(head, []).append((a, b))
    return tuple(sorted(tuple(sorted(group)) for group in groups.values()))


@cache
def _mean_overlap_product(groups: Groups, d: int, heads: int) -> float:
    """Each group of edges takes a head at random: the mean product of all overlaps."""
    total = 0.0
    for classes in _set_partitions(len(groups)):
        if len(classes) <= heads:
            graphs = [tuple(sorted(edge for i in members for edge in groups[i])) for members in classes]
            weight = math.perm(heads, len(classes)) / heads ** len(groups)
            total += (
                weight * math.prod(_overlap_product(graph, d) for graph in graphs) if all(map(_even, graphs)) else 0
            )
    return total


@cache
def _even(graph: tuple[Edge, ...]) -> bool:
    """A key and its negative are equally likely, so a key met an odd number of times makes the mean vanish."""
    return all(degree % 2 == 0 for degree in Counter(key for edge in graph for key in edge).values())


@cache
def _overlap_product(graph: tuple[Edge, ...], d: int) -> float:
    r"""The mean of :math:`\prod k_a \cdot k_b` over a graph's edges, in one head: integrate out one key after another.

    .. math:: \mathbb{E} \prod_{i=1}^{2m} (k \cdot x_i) = \frac{\sum_{\text{pairings}} \prod x_i \cdot x_j}
              {d(d+2)\cdots(d+2m-2)}
    """
    degree = Counter(key for edge in graph for key in edge)
    if not degree:
        return 1.0
    key = min(degree, key=lambda k: (degree[k], k))
    rest = [edge for edge in graph if key not in edge]
    ends = [a + b - key for a, b in graph if key in (a, b)]
    total = 0.0
    for pairing in _pairings(tuple(range(len(ends)))):
        joined = [tuple(sorted((ends[i], ends[j]))) for i, j in pairing if ends[i] != ends[j]]
        total += _overlap_product(tuple(sorted(rest + joined)), d)
    return total / math.prod(range(d, d + len(ends), 2))


@cache
def _pairings(items: tuple[int, ...]) -> list[list[Edge]]:
    if not items:
        return [[]]
    first, others = items[0], items[1:]
    return [[(first, mate), *rest] for i, mate in enumerate(others) for rest in _pairings(others[:i] + others[i + 1 :])]


@cache
def _set_partitions(size: int) -> list[list[list[int]]]:
    if size == 0:
        return [[]]
    last = size - 1
    return [
        new
        for old in _set_partitions(last)
        for new in [*([*old[:i], [*old[i], last], *old[i + 1 :]] for i in range(len(old))), [*old, [last]]]
    ]
