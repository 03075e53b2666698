"""Moments of Gram matrices: two independent derivations, and cases small enough to enumerate."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from pavlov import moments


@pytest.mark.parametrize("power", [1, 2, 5, 12])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_in_one_dimension_the_gram_matrix_has_one_eigenvalue(n, power):
    assert moments.gram_moment(n, 1, power) == n ** (power - 1)


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("power", [2, 5, 11])
def test_two_keys_have_eigenvalues_one_plus_and_minus_their_overlap(d, power):
    def even_moment(k):  # of the overlap
        return Fraction(math.prod(range(1, 2 * k, 2)), math.prod(range(d, d + 2 * k, 2)))

    expected = sum(math.comb(power, 2 * k) * even_moment(k) for k in range(power // 2 + 1))
    assert moments.gram_moment(2, d, power) == expected


@pytest.mark.parametrize(("n", "d"), [(2, 5), (3, 1), (9, 4), (64, 48)])
@pytest.mark.parametrize("power", [0, 1, 2, 3, 6, 8])
def test_zonal_polynomials_and_closed_walks_agree(n, d, power):
    walks = sum(math.comb(power, m) * moments.walk_moment(n, d, 1, m) for m in range(power + 1) if m != 1)
    assert walks == pytest.approx(float(moments.gram_moment(n, d, power)), rel=1e-12)


@pytest.mark.parametrize("ratio", [Fraction(1, 4), 1, 3])
def test_the_limit_is_marchenko_pasturs_and_the_distance_falls_like_one_over_d(ratio):
    limit = moments.marchenko_pastur(6, float(ratio))
    distance = [float(moments.gram_moment(int(ratio * d), d, 6)) / limit - 1 for d in (64, 128, 256)]
    assert distance[0] / distance[1] == pytest.approx(2, abs=0.1)
    assert distance[1] / distance[2] == pytest.approx(2, abs=0.05)


def test_the_coefficients_of_marchenko_and_pastur_are_narayanas():
    assert [moments.marchenko_pastur(m, 1.0) for m in range(7)] == [1, 1, 2, 5, 14, 42, 132]  # Catalan numbers
    assert moments.marchenko_pastur(4, 2.0) == 1 + 6 * 2 + 6 * 4 + 8


def every_sign_key(heads: int, n: int) -> torch.Tensor:
    """All overlaps without the diagonal, of all ``heads * n`` one-dimensional keys: (draws, heads, n, n)."""
    keys = torch.tensor(list(itertools.product((1.0, -1.0), repeat=heads * n)), dtype=torch.float64)
    keys = keys.reshape(-1, heads, n, 1)
    return keys @ keys.mT - torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("chords", [(), ((0, 3),), ((0, 2),), ((0, 5), (1, 4)), ((0, 5), (2, 3))])
@pytest.mark.parametrize(("heads", "n"), [(1, 3), (2, 4), (3, 3)])
def test_closed_walks_with_chords_are_what_enumeration_gives(heads, n, chords):
    overlaps, steps = every_sign_key(heads, n), 6
    partner = {t: s for s, t in chords}
    total = 0.0
    free = [step for step in range(steps) if step not in partner]
    for choice in itertools.product(range(heads), repeat=len(free)):
        head = dict(zip(free, choice, strict=True))
        product = torch.eye(n, dtype=torch.float64)
        for step in range(steps):
            product = product @ overlaps[:, head[partner.get(step, step)]]
        total += product[:, 0, 0].mean().item() / heads ** len(free)
    assert moments.walk_moment(n, 1, heads, steps, chords) == pytest.approx(total, rel=1e-12)


def test_closed_walks_in_several_dimensions_and_heads_are_what_simulation_gives():
    generator = torch.Generator().manual_seed(3)
    keys = torch.nn.functional.normalize(
        torch.randn(400_000, 2, 4, 3, generator=generator, dtype=torch.float64), dim=-1
    )
    overlaps = (keys @ keys.mT - torch.eye(4, dtype=torch.float64)).unbind(1)
    mean = sum(overlaps) / 2
    free = torch.linalg.matrix_power(mean, 6).diagonal(dim1=-2, dim2=-1).mean(-1)
    tied = sum(e @ mean @ mean @ e @ mean @ mean for e in overlaps) / 2
    tied = tied.diagonal(dim1=-2, dim2=-1).mean(-1)
    for sample, chords in [(free, ()), (tied, ((0, 3),))]:
        stderr = sample.std() / len(sample) ** 0.5
        assert stderr < 0.01 * sample.mean()
        assert abs(sample.mean() - moments.walk_moment(4, 3, 2, 6, chords)) < 5 * stderr
