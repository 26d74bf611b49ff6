"""The lesson: six steps, each with a prediction, a run, and an exercise."""
