"""Models over HTTP, and the scripted one."""
