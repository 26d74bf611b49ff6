"""The load scripts: one declaration for each script of k6/ (k6.py) and of clients/ (clients.py)."""
