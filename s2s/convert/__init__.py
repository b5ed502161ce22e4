"""Rewriting a user's file: classes to closures and back, with everything else left as it is."""
