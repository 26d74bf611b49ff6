"""The machine: its container engine, the images on it, what happens to it during a load, and what it was."""
