"""The `docker` runtime: members of an instance are containers on a Docker engine."""
