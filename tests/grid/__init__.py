"""Functions x ways to run them: is the gradient right, refused, or silently another one?

``python -m benchmarks.grid`` runs it; ``subjects.py`` has the functions, ``peers.py`` the same
functions written by hand in three styles, ``ways/`` one small function per way, ``judge.py`` says
what a cell is.
"""
