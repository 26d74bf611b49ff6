"""What theory says of a run: predictions, what-if, and options to serve a load."""
