"""Sessions for agent frameworks: one module per framework, each with an extra of the same name.

Every class here takes `Sessions` or `AsyncSessions`, of any store, and neither opens nor closes it.
"""
