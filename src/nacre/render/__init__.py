"""A conversation as terminal text, Markdown or HTML: one renderer for show, export and the web page."""
