"""Custom gradients for PyTorch, written once as a closure and compiled to readable Python."""

from .decorator import autograd_script, source
from .errors import TransformError
from .reference import autograd_function

__all__ = ["TransformError", "autograd_function", "autograd_script", "source"]
__version__ = "0.1.0"
