"""One rewrite a file: each takes a ``Pair`` and returns another."""
