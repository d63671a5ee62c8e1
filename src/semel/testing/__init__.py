"""Shipped, so that users can test their own agents: fault ports, conformance suites, a scripted model server."""
