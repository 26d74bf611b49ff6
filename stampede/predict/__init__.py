"""What theory says of a run: predictions, what-if, and options to serve a load."""

FEWER = (
    "Numba is missing, so the simulator is interpreted, and simulates less: what theory says is less certain. "
    "To compile it: pip install 'stampede-lab[lab]'"
)
"""What a command says before it shows what an interpreted simulator found."""
