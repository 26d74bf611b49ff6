"""What gunicorn's dirty workers do for ``workload``: they compute."""

import workload
from gunicorn.dirty import DirtyApp


class Burning(DirtyApp):
    """Computes in the process of a dirty worker."""

    def burn(self, cpu_ms: float) -> None:
        """Compute until this thread has used ``cpu_ms`` of processor time."""
        workload.burn(cpu_ms)
