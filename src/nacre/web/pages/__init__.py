"""The web page: every session to read, to search and to write in, drawn by the server."""
