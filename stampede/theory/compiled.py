"""Numba's ``njit``, or without Numba, which the extra ``lab`` brings, nothing: the same functions are interpreted."""

from typing import Any

__all__ = ["COMPILED", "njit"]
try:
    from numba import njit
except ModuleNotFoundError:

    def njit(*_: Any, **__: Any) -> Any:  # type: ignore[no-redef]  # noqa: ANN401  # as Numba's own
        """Return a decorator that leaves a function as it is."""
        return lambda function: function

    COMPILED = False
else:
    COMPILED = True
