"""The service around the agent: HTTP, metrics, command line, dashboard."""
