"""The tool that fetches from the public web, and its text as Markdown."""
