r"""Keys and values: the stimuli of an experiment.

Unless a page says otherwise, keys are unit vectors drawn uniformly on the sphere :math:`S^{d-1}`, so that
:math:`\mathbb{E}[k k^\top] = I/d`, and values are unit vectors independent of them.

Random stimuli take a :class:`torch.Generator`, never the global one, and live on its device.
Every function returns vectors along the last axis.
"""

import math

import torch
from torch import Tensor


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def gaussian(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """Independent standard normal entries.

    Args:
        shape: ``(..., d)``.
        generator: source of randomness; the result lives on its device.
        dtype: floating-point type of the result.
    """
    _positive(d=shape[-1])
    return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)


def sphere(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    r"""Unit vectors uniform on :math:`S^{d-1}`, a normalised Gaussian: :math:`k = g / \lVert g \rVert`.

    Args:
        shape: ``(..., d)``.
        generator: source of randomness; the result lives on its device.
        dtype: floating-point type of the result.

    Raises:
        ValueError: if ``d < 1``.
    """
    return unit(gaussian(*shape, generator=generator, dtype=dtype))


def unit(vectors: Tensor) -> Tensor:
    r"""Scale each vector to length one, :math:`x / \lVert x \rVert`; a zero vector stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > 0, length, 1)


def signs(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    r"""Unit vectors with independent entries :math:`\pm 1/\sqrt{d}`: two-valued stimuli.

    Args and errors as :func:`sphere`.
    """
    _positive(d=shape[-1])
    bits = torch.randint(0, 2, shape, generator=generator, device=generator.device)
    return (2 * bits - 1).to(dtype) / math.sqrt(shape[-1])


def rectified(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    r"""Unit vectors :math:`\mathrm{relu}(g) / \lVert \mathrm{relu}(g) \rVert`: keys that cannot be negative.

    Their mean is not zero, so any two overlap: in high dimension :math:`k_i \cdot k_j \to 1/\pi`.
    Args and errors as :func:`sphere`. A vector whose entries are all negative would be zero; such a draw is
    reflected to its absolute value instead.
    """
    draw = gaussian(*shape, generator=generator, dtype=dtype)
    positive = draw.clamp(min=0)
    return unit(torch.where((positive > 0).any(-1, keepdim=True), positive, draw.abs()))


def anisotropic(*shape: int, spectrum: Tensor, generator: torch.Generator) -> Tensor:
    r"""Unit vectors with a given second moment, :math:`\mathbb{E}[k k^\top] = \mathrm{diag}(\lambda)`, exactly.

    Each entry is :math:`\pm\sqrt{\lambda_i}` with a fair sign, so that the length is
    :math:`\sqrt{\operatorname{tr}\mathrm{diag}(\lambda)} = 1`.

    Args:
        shape: ``(..., d)``.
        spectrum: the ``d`` eigenvalues, non-negative, with sum one.
        generator: source of randomness; the result lives on its device.

    Raises:
        ValueError: if the spectrum has another length than ``d``, a negative entry or a sum other than one.
    """
    d = shape[-1]
    if spectrum.shape != (d,):
        raise ValueError(f"spectrum must have shape ({d},) to match shape {shape}, got {tuple(spectrum.shape)}")
    if (spectrum < 0).any() or not math.isclose(float(spectrum.sum()), 1, rel_tol=1e-6):
        raise ValueError(
            f"spectrum must be non-negative with sum 1, got sum {float(spectrum.sum()):g} "
            f"and minimum {float(spectrum.min()):g}; divide it by its sum"
        )
    flips = signs(*shape, generator=generator, dtype=spectrum.dtype)
    return flips * (d * spectrum.to(generator.device)).sqrt()


def one_hot(n: int, d: int, *, dtype: torch.dtype = torch.float64, device: str | torch.device = "cpu") -> Tensor:
    """The first ``n`` standard basis vectors, shape ``(n, d)``: stimuli with nothing in common.

    Raises:
        ValueError: if ``n > d``, since only ``d`` vectors can be mutually orthogonal, or if either is below one.
    """
    _positive(n=n, d=d)
    if n > d:
        raise ValueError(f"n must be at most d = {d} for one-hot stimuli, got n = {n}")
    return torch.eye(n, d, dtype=dtype, device=device)


def tight_frame(n: int, d: int, *, dtype: torch.dtype = torch.float64, device: str | torch.device = "cpu") -> Tensor:
    r"""A real harmonic frame: ``n`` unit vectors in ``d`` dimensions with :math:`\sum_i k_i k_i^\top = (n/d) I`.

    No set of unit keys has less total interference: it meets the Welch bound with equality
    :cite:p:`welch1974lower`. Pairs of coordinates are :math:`\sqrt{2/d}\,(\cos, \sin)(2\pi i f/n)` for the
    frequencies :math:`f = 1, \dots, \lfloor d/2 \rfloor`; an odd ``d`` adds the constant :math:`1/\sqrt{d}`.

    Raises:
        ValueError: if ``n <= d`` (then :func:`one_hot` is better still), or if either is below one.
    """
    _positive(n=n, d=d)
    if n <= d:
        raise ValueError(f"n must exceed d = {d} for a harmonic frame, got n = {n}; use one_hot(n, d)")
    frequency = torch.arange(1, d // 2 + 1, dtype=dtype, device=device)
    angle = 2 * math.pi / n * torch.arange(n, dtype=dtype, device=device)[:, None] * frequency  # (n, d // 2)
    waves = torch.cat([angle.cos(), angle.sin()], dim=-1) * math.sqrt(2 / d)
    constant = torch.full((n, d % 2), 1 / math.sqrt(d), dtype=dtype, device=device)
    return torch.cat([constant, waves], dim=-1)
