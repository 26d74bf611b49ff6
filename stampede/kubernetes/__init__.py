"""Print a trial as manifests for Kubernetes, derived from the services that Compose makes of docker-compose.yml."""
