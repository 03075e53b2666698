"""The press: text notebooks in, a checked book out. It knows notebooks and knows no science.

``project`` finds the chapters, ``notebook`` reads one and says what its results depend on, ``execute``
runs it, ``ledger`` holds its checks against the registered claims, ``stage`` lays out the pages, ``render``
prints them, ``build`` does all of it in order, and ``terminal`` shows what happens.
"""
