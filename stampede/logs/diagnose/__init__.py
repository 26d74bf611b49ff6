"""Who waited in production: from the logs of the balancer and of the servers, without load and without a container."""
