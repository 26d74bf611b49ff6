"""A page with a form and the newest entries, in a database: what a small Django site does."""
