"""Attention as Pavlovian conditioning: the theorems of a paper, as code that is run and checked.

The modules follow the book. :mod:`pavlov.attention` is the memory itself, :mod:`pavlov.capacity` says how much
it holds, :mod:`pavlov.stimuli` draws keys and values, and :mod:`pavlov.montecarlo` measures with standard errors.
"""

__version__ = "0.1.0"
