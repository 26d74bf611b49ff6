"""What the lab's packages need of the processor, and what of it this machine's processor lacks."""

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
ENOUGH = 8192
"""How many bytes of /proc/cpuinfo describe the first core. The whole file takes long on a machine with many cores."""
NEEDED = ("avx", "avx2", "bmi1", "bmi2", "abm")
"""The flags of an x86-64 processor without which duckdb ends with "Illegal instruction", or computes wrongly."""
WAY_OUT = "In a virtual machine, choose the CPU type host or x86-64-v3; otherwise use a machine with a newer processor."


def model_name(told: str) -> str:
    """Return the model of the processor that /proc/cpuinfo describes; empty if the kernel does not tell."""
    values = (line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name"))
    return next(values, "")


def cpuinfo() -> str:
    """Return what the kernel says of the first core; empty if it does not tell."""
    try:
        with CPUINFO.open(encoding="ascii", errors="replace") as file:
            return file.read(ENOUGH)
    except OSError:
        return ""


def problem() -> str | None:
    """Return in a sentence what the processor lacks; None if it lacks nothing, or if this is no x86-64 with Linux."""
    text = cpuinfo()
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    lacking = [flag for flag in NEEDED if flags and flag not in flags]
    if not lacking:
        return None
    model = model_name(text) or "the processor of this machine"
    return f"duckdb needs a processor with {', '.join(NEEDED)} (x86-64-v3), and {model} lacks {', '.join(lacking)}."
