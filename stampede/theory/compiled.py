"""Numba's ``njit``, or without Numba, a decorator that leaves functions as they are."""

from typing import Any

from stampede.theory import COMPILED

__all__ = ["njit"]

if COMPILED:
    from numba import njit
else:

    def njit(*_: Any, **__: Any) -> Any:  # type: ignore[no-redef]  # noqa: ANN401  # as Numba's own
        """Return a decorator that leaves a function as it is."""
        return lambda function: function
