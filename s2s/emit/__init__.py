"""A ``Pair`` as text, one file a form. Nothing here runs anything."""
