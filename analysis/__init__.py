"""From k6's points to requests, figures, verdicts and pages. Imports no other package of the lab."""
