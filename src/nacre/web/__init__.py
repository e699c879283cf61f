"""The agent over HTTP: an OpenAI-compatible endpoint, an API for sessions, and authentication."""
