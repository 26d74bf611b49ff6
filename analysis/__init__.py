"""From k6's points to requests, figures, verdicts and pages. Depends on nothing else of the lab."""
