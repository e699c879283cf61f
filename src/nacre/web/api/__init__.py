"""The HTTP API: sessions, and what OpenAI's clients ask for."""
