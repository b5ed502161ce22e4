"""``autograd.Function`` classes: where they are, what their methods do with ``ctx``."""
