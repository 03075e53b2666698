"""Stimuli have the lengths and moments that the theorems assume."""

import math

import pytest
import torch

from pavlov import stimuli


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("draw", [stimuli.sphere, stimuli.signs, stimuli.rectified])
def test_random_stimuli_are_unit_vectors_of_the_asked_shape_and_dtype(draw, generator):
    keys = draw(3, 5, 16, generator=generator, dtype=torch.float32)
    assert keys.shape == (3, 5, 16)
    assert keys.dtype == torch.float32
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(3, 5))


@pytest.mark.parametrize("draw", [stimuli.sphere, stimuli.signs])
def test_isotropic_keys_have_mean_zero_and_second_moment_identity_over_d(draw, generator):
    n, d = 200_000, 4
    keys = draw(n, d, generator=generator)
    assert keys.mean(0).abs().max() < 5 / math.sqrt(n * d)
    assert (keys.mT @ keys / n - torch.eye(d) / d).abs().max() < 5 / math.sqrt(n)


def test_rectified_keys_are_not_negative_and_overlap_by_one_over_pi(generator):
    keys = stimuli.rectified(2, 2000, generator=generator)
    assert (keys >= 0).all()
    assert float(keys[0] @ keys[1]) == pytest.approx(1 / math.pi, abs=0.05)


def test_a_rectified_key_in_one_dimension_is_never_zero(generator):
    assert (stimuli.rectified(50, 1, generator=generator) == 1).all()


def test_anisotropic_keys_have_unit_length_and_the_given_spectrum(generator):
    spectrum = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    keys = stimuli.anisotropic(100_000, 3, spectrum=spectrum, generator=generator)
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(100_000, dtype=torch.float64))
    assert (keys.mT @ keys / 100_000 - torch.diag(spectrum)).abs().max() < 0.01


def test_one_hot_stimuli_share_nothing():
    assert torch.equal(stimuli.one_hot(2, 3) @ stimuli.one_hot(2, 3).mT, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize(("n", "d"), [(3, 2), (7, 3), (65, 64), (129, 64), (10, 1)])
def test_a_harmonic_frame_is_tight_and_of_unit_length(n, d):
    keys = stimuli.tight_frame(n, d)
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(n, dtype=torch.float64))
    torch.testing.assert_close(keys.mT @ keys, n / d * torch.eye(d, dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_same_seed_gives_the_same_stimuli():
    draws = [stimuli.sphere(4, 4, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*draws)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: stimuli.sphere(3, 0, generator=g), "d must be at least 1, got 0"),
        (lambda g: stimuli.one_hot(4, 3), "n must be at most d = 3"),
        (lambda g: stimuli.tight_frame(3, 3), "use one_hot"),
        (lambda g: stimuli.anisotropic(5, 2, spectrum=torch.tensor([1.0, 1.0]), generator=g), "divide it by its sum"),
        (lambda g: stimuli.anisotropic(5, 3, spectrum=torch.tensor([0.5, 0.5]), generator=g), r"shape \(3,\)"),
    ],
)
def test_bad_input_is_named(call, message, generator):
    with pytest.raises(ValueError, match=message):
        call(generator)
