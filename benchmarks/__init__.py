"""What the store and the agent cost: ratios against the raw operation or a peer in the same run, and counts."""
