"""The Grafana dashboards and the Prometheus rules, as data; ``generate`` writes them as files."""
