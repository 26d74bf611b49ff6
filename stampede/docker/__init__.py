"""The machine: its container engine and images, its load during a trial, and what a run records about it."""
